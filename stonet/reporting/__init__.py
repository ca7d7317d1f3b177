"""Figures and pages on a trained model: the report, and the figure of an influence.

Comes in: a `TrainedModel` and its data. Goes out: one self-contained HTML page, or matplotlib
figures. Start reading at `report.py`, then `results.py` (what is computed) and `page.py` (how it is
shown); `sections/` has one file for each section of the page.
"""
