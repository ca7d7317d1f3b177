"""The Field, and what is cut from it: splits, windows, batches, scaled values.

Comes in: values at points through time, checked by `Field`. Goes out: normalised batches of
past/future windows. Start reading at `field.py`, then `windows.py`.
"""
