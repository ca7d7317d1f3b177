"""The routes of the service."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query, Response

from stonet.errors import StonetError
from stonet.serving import about, fields, forecasts, observed
from stonet.serving.gate import Gate
from stonet.serving.issue import Watch
from stonet.serving.messages import FieldRequest, ForecastRequest, Format, Observations
from stonet.serving.metrics import CONTENT_TYPE, Metrics
from stonet.serving.numbers import encode
from stonet.serving.page_files import INDEX, PageFiles
from stonet.serving.service import Service
from stonet.serving.times import label

FILES = {"csv": (".csv", "text/csv; charset=utf-8"), "netcdf": (".nc", "application/x-netcdf")}
MAX_ENTRIES = 2000  # of stations in a query
TimeQuery = Annotated[str | None, Query(min_length=1, max_length=64)]
Hours = Annotated[float, Query(gt=0, le=1e6, allow_inf_nan=False)]


def as_response(content: object) -> Response:
    """A document as an answer.

    Args:
        content: what JSON can hold.
    """
    return Response(encode(content), media_type="application/json")


def add_routes(
    app: FastAPI, service: Service, gate: Gate, metrics: Metrics, page: PageFiles
) -> None:
    """Add all routes to the application.

    Args:
        app: the application.
        service: answers.
        gate: runs computations.
        metrics: of the requests.
        page: files of the page.
    """
    _add_page(app, page)
    _add_observations(app, service, gate)
    _add_forecasts(app, service, gate)
    _add_health(app, service, gate, metrics)


def _add_page(app: FastAPI, page: PageFiles) -> None:
    @app.get("/", include_in_schema=False)
    def index() -> Response:
        content, kind = page.find(INDEX)
        return Response(content, media_type=kind)

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        content, kind = page.find(name)
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})


def _add_observations(app: FastAPI, service: Service, gate: Gate) -> None:
    limits = service.limits

    @app.get("/v1/model", summary="The model: channels, times, region, limits")
    def model() -> Response:
        return as_response(about.about(service, limits))

    @app.get("/v1/stations", summary="Observations of all stations at a time")
    def stations(time: TimeQuery = None) -> Response:
        return as_response(observed.stations(service.snapshot.field, time))

    @app.get("/v1/series", summary="The past of some stations")
    def series(
        stations: Annotated[list[str], Query(max_length=MAX_ENTRIES)],
        hours: Hours = 48.0,
        issue_time: TimeQuery = None,
    ) -> Response:
        names = observed.split_names(stations, service.snapshot.field.points)
        field = service.snapshot.field
        return as_response(observed.series(field, names, hours, issue_time, limits))

    @app.post("/v1/observations", summary="New observations, which forecasts follow")
    async def observe(new: Observations) -> Response:
        def work(watch: Watch) -> dict[str, object]:
            now = service.observe(new)
            count = sum(v is not None for rows in new.values.values() for row in rows for v in row)
            latest = label(int(now.field.times[-1]), now.field.calendar)
            return {"accepted": count, "issue_time": latest, "times": len(now.field.times)}

        return as_response(await gate.run(work))


def _add_forecasts(app: FastAPI, service: Service, gate: Gate) -> None:
    limits = service.limits

    @app.post("/v1/forecast", summary="Forecasts at sites or at all stations")
    async def forecast(
        request: ForecastRequest, format: Annotated[Format, Query()] = "json"
    ) -> Response:
        def work(watch: Watch) -> Response:
            issue = service.issue(request.issue_time, request.observations)
            watch()
            if format == "json":
                made, notes = forecasts.forecast(request, issue, limits, watch)
                return as_response(forecasts.as_document(made, issue, notes))
            wanted = forecasts.with_median(request)
            made, _ = forecasts.forecast(wanted, issue, limits, watch)
            suffix, kind = FILES[format]
            name = forecasts.file_name(issue.trained, made.field, suffix)
            headers = {"Content-Disposition": f'attachment; filename="{name}"'}
            return Response(forecasts.as_file(made, suffix), 200, headers, kind)

        return await gate.run(work)

    @app.post("/v1/field", summary="The forecast of a channel on a grid")
    async def field(request: FieldRequest) -> Response:
        def work(watch: Watch) -> Response:
            issue = service.issue(request.issue_time)
            watch()
            return as_response(fields.field(request, issue, limits, watch))

        return await gate.run(work)

    @app.get("/v1/coast", summary="Coastlines and borders of countries")
    def coast(region: Annotated[str | None, Query(max_length=200)] = None) -> Response:
        return as_response(fields.coast(region, service.snapshot.field.points))


def _add_health(app: FastAPI, service: Service, gate: Gate, metrics: Metrics) -> None:
    @app.get("/health/live", summary="Whether the process answers")
    def live() -> Response:
        return as_response({"status": "live"})

    @app.get("/health/ready", summary="Whether a forecast from the latest observations is possible")
    async def ready() -> Response:
        try:
            issue = await gate.run(lambda watch: service.issue())
        except StonetError as error:
            content = encode({"status": "not ready", "reason": str(error)})
            return Response(content, 503, media_type="application/json")
        latest = label(issue.time, issue.field.calendar)
        return as_response({"status": "ready", "issue_time": latest})

    @app.get("/metrics", summary="Counts and times for Prometheus")
    def numbers() -> Response:
        field = service.snapshot.field
        gauges = {
            "stonet_computations_running": ("Computations in work.", gate.running),
            "stonet_computations_waiting": ("Computations that wait.", gate.waiting),
            "stonet_computations_refused": ("Computations refused since the start.", gate.refused),
            "stonet_stations": ("Stations with a history.", len(field.points)),
            "stonet_frames": ("Times of observations.", len(field.times)),
            "stonet_issue_time_seconds": ("Latest observation.", float(field.times[-1]) / 1e9),
            "stonet_observation_changes": ("Changes since the start.", service.snapshot.number),
        }
        return Response(metrics.text(gauges), media_type=CONTENT_TYPE)
