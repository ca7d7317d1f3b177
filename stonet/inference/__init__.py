"""A trained model and a Field to forecasts: once, from every past time, or frame by frame.

Comes in: a `TrainedModel` and a `Field`. Goes out: a `Field` or a Zarr store. Start reading at
`forecast.py`.
"""
