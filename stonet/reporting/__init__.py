"""Figures and pages on a trained model: influence, placement of sensors, the report.

Comes in: a `TrainedModel`, its data and results of inference and evaluation. Goes out: matplotlib
figures, or one self-contained HTML page. Start reading at `page.py`.
"""
