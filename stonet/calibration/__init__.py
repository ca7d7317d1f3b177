"""Calibration: a model's own past errors correct its forecasts and give them intervals.

Comes in: a trained model of any kind and its validation part. Goes out: a `Calibration`, which
corrects forecasts by recent errors and gives their quantiles. Start reading at `conformal.py`;
`past_forecasts.py` tells which errors are known at an issue time.
"""
