"""Scores beside the reference forecasts, models side by side, significance, interpolation.

Comes in: a `TrainedModel` and its `Task`. Goes out: tidy records. Start reading at `scoring.py`.
"""
