"""The eight published models that STONet is compared with, and the reference forecasts.

Comes in: a batch. Goes out: a forecast. Each file is one model and names its paper; `base.py` holds
what they share.
"""
