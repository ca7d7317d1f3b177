"""From a trained model and a Field to forecasts: one, a hindcast, or a stream.

Comes in: a `TrainedModel` and a `Field`. Goes out: a `Field` or a Zarr store. Start reading at
`forecast.py`, then `session.py`.
"""
