"""The service: forecasts of one run as a page and a JSON API on HTTP (`stonet serve`).

Comes in: a `TrainedModel`, its calibration and a `Field` of observations. Goes out: a FastAPI
application and the process that serves it. Start reading at `app.py` (the routes), then
`service.py` (what they answer) and `guard.py` (what is refused). The package needs the extra
`serve`.
"""
