"""The models that STONet is compared with, and the reference forecasts.

Comes in: a batch. Goes out: a forecast. Each file is one model; its docstring names the paper under
References and each difference under Deviations. `base.py` has what the published models share.
"""
