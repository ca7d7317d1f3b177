"""Forecasters: STONet, the published baselines and the reference forecasts, by name.

Comes in: a batch and the graphs of nodes and queries. Goes out: a forecast in normalised units.
Start reading at `forecaster.py`, then `stonet.py`; `registry.py` lists all models.
"""
