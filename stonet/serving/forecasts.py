"""Answers of /v1/forecast: a forecast at sites, as JSON, CSV or NetCDF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from jaxtyping import Int64

from stonet.data.cf import SUPPORT
from stonet.data.durations import SECOND
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.data.quantile_field import QuantileField
from stonet.graph.neighbours import nearest_nodes
from stonet.inference.forecast import requested_times
from stonet.inference.places import snap_to_stations
from stonet.io.write import write
from stonet.io.write_quantiles import write_quantiles
from stonet.serving.history import positions_of
from stonet.serving.issue import Issue, Watch
from stonet.serving.limits import Limits
from stonet.serving.messages import ForecastRequest
from stonet.serving.numbers import as_json, number
from stonet.serving.refusal import Refused
from stonet.serving.times import label, labels, parse
from stonet.training.trained_model import TrainedModel

NEAREST = 3  # observed stations that are named for each site
MEDIAN = 0.5
Document = dict[str, Any]


def forecast(
    request: ForecastRequest, issue: Issue, limits: Limits, watch: Watch = lambda: None
) -> tuple[QuantileField, tuple[str, ...]]:
    """The forecast that a request asks for, and notes on its sites.

    Args:
        request: where and when.
        issue: features of its issue time.
        limits: of the service.
        watch: called between the parts of the computation.

    Raises:
        Refused: if there are too many sites or times, or one is not valid.
        UsageError: if positions, times or quantiles are not valid.
    """
    queries, notes = sites_of(request, issue.field.points, limits)
    times = times_of(request.times, issue, limits)
    quantiles = tuple(request.quantiles or ())
    count = len(queries) * len(times) * len(issue.trained.channels) * (1 + len(quantiles))
    limits.check_count("values (sites x times x channels x quantiles)", count, limits.values)
    return issue.forecast(queries, times, quantiles, watch), notes


def sites_of(
    request: ForecastRequest, stations: Points, limits: Limits
) -> tuple[Points, tuple[str, ...]]:
    """The sites of a request; one beside a station stands for it, and a note says so.

    Args:
        request: sites and their names.
        stations: of the observations.
        limits: of the service.
    """
    sites, names = request.sites, request.names
    if sites is None:
        if names is not None:
            raise Refused(422, "'names' were given without 'sites'. Give both, or neither.")
        return stations, ()
    limits.check_count("sites", len(sites), limits.sites)
    if names is not None and len(names) != len(sites):
        raise Refused(422, f"{len(names)} names for {len(sites)} sites. Give one for each.")
    found = iter(positions_of(stations, [site for site in sites if isinstance(site, str)]))
    rows = [stations.coordinates[next(found)] if isinstance(s, str) else s for s in sites]
    own = tuple(s if isinstance(s, str) else f"{s[0]!r},{s[1]!r}" for s in sites)
    places = Points(np.array(rows, dtype=np.float64), stations.kind, tuple(names or own))
    return snap_to_stations(places, stations)


def times_of(
    times: Sequence[str] | None, issue: Issue, limits: Limits
) -> Int64[np.ndarray, " future"]:
    """The times of a request in nanoseconds.

    Args:
        times: leads or dates; None: the trained leads.
        issue: to whose time leads are added.
        limits: of the service.
    """
    calendar = issue.field.calendar
    if times is None:
        return requested_times(issue.trained, issue.time, None, calendar)
    limits.check_count("times", len(times), limits.times)
    parsed = [parse(time, calendar, issue.time) for time in times]
    return requested_times(issue.trained, issue.time, parsed, calendar)


def as_document(made: QuantileField, issue: Issue, notes: tuple[str, ...] = ()) -> Document:
    """The answer as JSON.

    Args:
        made: the forecast.
        issue: that it was made from.
        notes: on the sites.
    """
    field, trained = made.field, issue.trained
    channels: Document = {}
    for c, name in enumerate(field.channels):
        ends = made.values[..., c].transpose(0, 2, 1)
        channels[name] = {
            "values": as_json(field.values[..., c].T),
            "quantiles": {
                f"{tau:g}": as_json(end) for tau, end in zip(made.quantiles, ends, strict=True)
            },
        }
    return {
        "issue_time": label(issue.time, field.calendar),
        "times": labels(field.times, field.calendar),
        "leads_seconds": ((field.times - issue.time) / SECOND).tolist(),
        "sites": site_documents(field, issue),
        "channels": channels,
        "units": dict(zip(trained.channels, trained.units, strict=True)),
        "notes": list(dict.fromkeys((*notes, *field.notes, *issue.notes))),
    }


def site_documents(field: Field, issue: Issue) -> list[Document]:
    """Each site with its distance from observations.

    Args:
        field: the forecast.
        issue: that it was made from.
    """
    nodes = np.flatnonzero(issue.window.observed.any((0, 2)))
    names = issue.window.points.names
    near = nodes[nearest_nodes(field.points, issue.window.points.take(nodes), NEAREST)[1]]
    sphere = field.points.kind == "sphere"
    documents = []
    for i, (name, first, second) in enumerate(field.points):
        distance = number(field.sites["nearest_observation"][i])
        documents.append(
            {
                "name": name,
                "position": [first, second],
                "support": SUPPORT[int(field.sites["support"][i])],
                "distance": distance,
                "distance_km": distance if sphere else None,
                "nearest": [names[node] for node in near[i]],
            }
        )
    return documents


def with_median(request: ForecastRequest) -> ForecastRequest:
    """The request with the quantile 0.5 among its quantiles, as files of `stonet predict` have it.

    Args:
        request: of a file.
    """
    if request.quantiles is None:
        return request
    return request.model_copy(update={"quantiles": sorted({*request.quantiles, MEDIAN})})


def as_file(made: QuantileField, suffix: str) -> bytes:
    """The forecast as a file, the same as `stonet predict` writes.

    Args:
        made: the forecast.
        suffix: ".csv" or ".nc".
    """
    with TemporaryDirectory(prefix="stonet-") as folder:
        path = Path(folder) / f"forecast{suffix}"
        if made.quantiles:
            write_quantiles(made, path)
        else:
            write(made.field, path)
        return path.read_bytes()


def file_name(trained: TrainedModel, field: Field, suffix: str) -> str:
    """The name of a downloaded file, of plain characters.

    Args:
        trained: the model.
        field: the forecast.
        suffix: of the file.
    """
    text = label(field.reference_time or 0, field.calendar)
    plain = "".join(c if c.isalnum() else "-" for c in f"{trained.channels[0]}-{text}")
    return f"forecast-{plain.encode('ascii', 'ignore').decode()}{suffix}"
