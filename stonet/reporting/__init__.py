"""Figures and pages on a trained model: the report, plots, influence, placement of sensors.

Comes in: a `TrainedModel` and its data. Goes out: one self-contained HTML page, or matplotlib
figures. Start reading at `report.py`, then `results.py` (what the report computes) and `page.py`
(how it is shown); `sections/` has one file for each section of the page. Plots for matplotlib are
in `plot_methods.py` and `model_plots.py`, `influence.py` and `placement.py`.
"""
