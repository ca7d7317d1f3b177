"""Figures: error curves, maps, snapshots; matplotlib without pyplot.

Comes in: Fields and tidy records. Goes out: figures as PNG or axes. Start reading at `figures.py`.
"""
