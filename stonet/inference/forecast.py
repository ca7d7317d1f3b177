"""Forecast: from a trained model and observations to values at any points and times."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64

from stonet.data.batch import Batch, make_batch
from stonet.data.cf import outline
from stonet.data.dates import Times, as_list, parse_time
from stonet.data.field import Field, time_label
from stonet.data.geometry import EARTH_RADIUS_KM, Points
from stonet.data.grid import Grid
from stonet.errors import DataError, UsageError
from stonet.graph.neighbours import SLACK, nearest_nodes, own_nodes
from stonet.inference.inputs import check_inputs, warn_of_inputs, without_far_values
from stonet.inference.session import Session, select_queries
from stonet.inference.support import support_notes
from stonet.io.zarr_writer import open_writer
from stonet.system import distributed
from stonet.system.progress import report_progress
from stonet.system.resources import parse_size, trim_memory
from stonet.training.trained_model import TrainedModel

MAX_LEAD = 1.25  # in trained horizons
MAX_AGE = 1.5  # of inputs, in trained past lengths
MIN_STEP = 0.5  # of the data, in trained steps
KEPT_ATTRIBUTES = (  # of the data, which hold for forecasts from them, too
    *("license", "licence", "institution", "references", "acknowledgement", "acknowledgment"),
    *("citation", "project", "creator_name", "creator_url", "publisher_name", "publisher_url"),
)
# (values of one forecast, query points, times) -> the values with a correction
Correction = Callable[[np.ndarray, Points, np.ndarray], np.ndarray]
BYTES_PER_VALUE = 16  # of a result in memory: as decoded, as checked, as returned


def forecast(
    trained: TrainedModel,
    field: Field,
    at: Points | None = None,
    times: Times | None = None,
    memory: int | str | None = None,
    session: Session | None = None,
) -> Field:
    """Forecast what follows the last time of a field, in its own units.

    Args:
        trained: a trained model.
        field: observations; the issue time is its last time. Its points need not be the training
            points: new points with a history join the graph.
        at: the query points (None: the field's points). They need no history.
        times: leads such as "+90min" or Timedelta, dates, or nanoseconds (None: the trained
            leads).
        memory: bytes, or a size such as "2G", that the whole process may take.
        session: of this model and these points; it saves building the graph again.

    Returns:
        the forecast; its `sites` tell the distance of the nearest observation and the support.

    Raises:
        DataError: if the field does not fit the model, or nothing was observed of late.
        UsageError: if points, times or session do not fit.
        ResourceError: if the memory is too small.

    Example:
        >>> trained = TrainedModel.load("runs/uk")
        >>> forecast(trained, stonet.read("uk.nc"), times=["+90min", "+6h"])
    """
    queries, requested, batch = prepare(trained, field, at, times)
    session = _matching_session(trained, field, session)
    shape = (len(requested), len(queries), len(trained.channels))
    encoded = session.encode(batch)
    chunk_size = session.chunk_size(_in_bytes(memory), BYTES_PER_VALUE * math.prod(shape))
    values = np.empty(shape, np.float32)
    done = 0
    for chunk in session.forecast_chunks(encoded, batch, queries, chunk_size):
        values[:, done : done + chunk.shape[2]] = chunk[0]
        done += chunk.shape[2]
        report_progress(done, len(queries))
    notes = warn_of_inputs(trained, latest_frames(trained, field, False))
    made = as_field(trained, latest_frames(trained, field), values, requested, queries)
    return replace(made, notes=notes) if notes else made


def forecast_to_file(
    trained: TrainedModel,
    field: Field,
    path: str | Path,
    at: Points | None = None,
    times: Times | None = None,
    memory: int | str | None = None,
    session: Session | None = None,
    correct: Correction | None = None,
) -> tuple[int, int]:
    """As `forecast`, into a file chunk by chunk; the result is never held in memory.

    Processes started by torchrun share the queries of a Zarr store.

    Args:
        trained: a trained model.
        field: observations.
        path: ending in .zarr or .nc.
        at: the query points (None: the field's points).
        times: leads, dates or nanoseconds (None: the trained leads).
        memory: that the whole process may take.
        session: of this model and these points; its `max_queries` are a chunk of the file.
        correct: applied to the values of each chunk (None: nothing).

    Returns:
        the number of times and of points.
    """
    queries, requested, batch = prepare(trained, field, at, times)
    session = _matching_session(trained, field, session)
    width = min(session.max_queries, -(-len(queries) // distributed.size()))
    grid = Grid.of(queries)
    if grid is not None:
        request = queries, requested, batch
        _grid_to_file(trained, field, Path(path), session, request, memory, correct)
        return len(requested), len(queries)
    empty = as_field(trained, latest_frames(trained, field), None, requested, queries)
    with open_writer(Path(path), (len(requested), width), *outline(empty)) as write:
        encoded, chunk_size = session.encode(batch), session.chunk_size(_in_bytes(memory))
        starts = range(distributed.rank() * width, len(queries), distributed.size() * width)
        for number, start in enumerate(starts):
            part = select_queries(queries, start, min(start + width, len(queries)))
            chunks = list(session.forecast_chunks(encoded, batch, part, chunk_size))
            values = np.concatenate(chunks, axis=2)
            values = values if correct is None else correct(values, part, requested)
            write((0, start), values[0])
            trim_memory()
            report_progress(number + 1, len(starts))
    return len(requested), len(queries)


def _grid_to_file(
    trained: TrainedModel,
    field: Field,
    path: Path,
    session: Session,
    request: tuple[Points, Int64[np.ndarray, " future"], Batch],
    memory: int | str | None,
    correct: Correction | None,
) -> None:
    """As `forecast_to_file`, with the dims of the grid that the queries form; some rows a piece."""
    queries, requested, batch = request
    unsorted = Grid.of(queries)
    assert unsorted is not None
    queries = queries.take(np.argsort(unsorted.cells))
    grid = replace(unsorted, cells=np.sort(unsorted.cells))
    (count, columns), size, rank = grid.shape, distributed.size(), distributed.rank()
    rows = max(1, min(session.max_queries // columns, -(-count // size)))
    empty = as_field(trained, latest_frames(trained, field), None, requested, queries)
    about, variables = outline(empty)
    dims, chunks = ("time", *grid.dims), (len(requested), rows, columns)
    with open_writer(path, chunks, grid.with_dims(about), variables, dims) as write:
        encoded, chunk_size = session.encode(batch), session.chunk_size(_in_bytes(memory))
        starts = range(rank * rows, count, size * rows)
        for number, start in enumerate(starts):
            stop = min(start + rows, count)
            first, last = np.searchsorted(grid.cells, (start * columns, stop * columns)).tolist()
            if first < last:
                part = select_queries(queries, first, last)
                decoded = list(session.forecast_chunks(encoded, batch, part, chunk_size))
                values = np.concatenate(decoded, axis=2)
                values = values if correct is None else correct(values, part, requested)
                write((0, start, 0), grid.scatter_fields(values[0], start, stop))
            trim_memory()
            report_progress(number + 1, len(starts))


def prepare(
    trained: TrainedModel, field: Field, at: Points | None, times: Times | None
) -> tuple[Points, Int64[np.ndarray, " future"], Batch]:
    """Query points, requested times and the input batch of a forecast.

    Args:
        trained: a trained model.
        field: observations; the issue time is its last time.
        at: the query points (None: the field's points).
        times: leads, dates or nanoseconds (None: the trained leads).

    Raises:
        DataError: if the field does not fit the model, or nothing was observed of late.
        UsageError: if points or times do not fit.
    """
    trained.check_compatible(field)
    check_step(trained, field)
    check_inputs(trained, latest_frames(trained, field, False))
    check_observed(trained, field)
    queries = field.points if at is None else at
    check_geometry(field.points, queries)
    requested = requested_times(trained, int(field.times[-1]), times, field.calendar)
    return queries, requested, latest_batch(trained, field, requested)


def _matching_session(trained: TrainedModel, field: Field, session: Session | None) -> Session:
    """The given session if it is of this model and field, or a new one."""
    if session is None:
        return Session(trained, field.points)
    if session.trained is not trained or session.nodes != field.points:
        raise UsageError("The session is of another model or of other points than the field.")
    return session


def check_step(trained: TrainedModel, field: Field) -> None:
    """Refuse frames that are much denser than in training: the past would be too short.

    Args:
        trained: the model.
        field: observations.
    """
    time_spec = trained.time_spec
    if len(field.times) > 2 and field.step < MIN_STEP * time_spec.step:
        step = time_spec.step / 1e9
        raise DataError(
            f"The data have a frame every {field.step / 1e9:g} s; this model was trained on one "
            f"every {step:g} s, and the last {time_spec.past} frames cover too short a time. "
            f"Read them with --every {step:g}s."
        )


def check_observed(trained: TrainedModel, field: Field) -> None:
    """Refuse a field without any value in the last frames.

    Args:
        trained: the model.
        field: observations.
    """
    if not latest_frames(trained, field).observed.any():
        raise DataError(
            f"No value was observed in the last {trained.time_spec.past} steps before "
            f"{time_label(int(field.times[-1]), field.calendar)}: there is nothing to forecast "
            "from. End the field at its last values."
        )


def check_geometry(nodes: Points, queries: Points) -> None:
    """Refuse queries on another geometry.

    Args:
        nodes: points of the data.
        queries: points of the forecast.
    """
    if queries.kind != nodes.kind:
        raise UsageError(
            f"The query points lie on a {queries.kind}; the data lie on a {nodes.kind}. "
            "Give coordinates of the same kind."
        )


def requested_times(
    trained: TrainedModel, issue_time: int, times: Times | None, calendar: bool
) -> Int64[np.ndarray, " future"]:
    """The requested times in nanoseconds; refused unless they increase and are within reach.

    Args:
        trained: the model.
        issue_time: in nanoseconds.
        times: as the user gave them; None: the trained leads.
        calendar: whether times are dates.
    """
    time_spec = trained.time_spec
    if times is None:
        return issue_time + time_spec.step * np.arange(1, time_spec.horizon + 1)
    parsed = [parse_time(time, calendar, issue_time) for time in as_list(times)]
    requested = np.array(parsed, dtype=np.int64)
    last = issue_time + int(MAX_LEAD * time_spec.horizon * time_spec.step)
    outside = requested[(requested <= issue_time) | (requested > last)]
    if len(outside) or not len(requested):
        raise UsageError(
            f"{len(outside)} of {len(requested)} requested times are out of reach"
            + (f" (first: {time_label(int(outside[0]), calendar)})" if len(outside) else "")
            + f"; this model forecasts times after {time_label(issue_time, calendar)} and up to "
            + f"{time_label(last, calendar)}."
        )
    if (np.diff(requested) <= 0).any():
        raise UsageError("Requested times must increase; sort them and remove duplicates.")
    return requested


def latest_frames(trained: TrainedModel, field: Field, screened: bool = True) -> Field:
    """The last frames of the field: at most `past` of them, and none that is too old.

    Args:
        trained: a trained model.
        field: observations.
        screened: whether values far outside of what training saw count as missing.
    """
    time_spec = trained.time_spec
    oldest = int(field.times[-1]) - int(MAX_AGE * time_spec.past * time_spec.step)  # exactly
    recent = np.flatnonzero(field.times > oldest)
    frames = field.between(int(recent[-time_spec.past :][0]), len(field.times))
    return without_far_values(trained, frames) if screened else frames


def latest_batch(
    trained: TrainedModel, field: Field, requested: Int64[np.ndarray, " future"]
) -> Batch:
    """One window that ends with the field's last frame; frames it lacks count as missing.

    Args:
        trained: the model.
        field: observations up to the issue time.
        requested: times of the forecast, in nanoseconds.
    """
    time_spec, frames = trained.time_spec, latest_frames(trained, field)
    lacking = time_spec.past - len(frames.times)
    shape = (lacking, *frames.values.shape[1:])
    normalised = trained.scaler.normalise(frames._filled())
    values = np.concatenate([np.zeros(shape, np.float32), normalised])
    observed = np.concatenate([np.zeros(shape, bool), frames.observed])
    earlier = frames.times[0] - time_spec.step * np.arange(lacking, 0, -1)
    return make_batch(
        lambda i: (torch.from_numpy((values * observed)[i]), torch.from_numpy(observed[i])),
        np.concatenate([earlier, frames.times]),
        np.arange(time_spec.past)[None],
        requested[None],
        time_spec,
    )


def as_field(
    trained: TrainedModel,
    window: Field,
    values: Float32[np.ndarray, "future query channel"] | None,
    requested: Int64[np.ndarray, " future"],
    queries: Points,
) -> Field:
    """The forecast as a Field with its metadata.

    Args:
        trained: the model that made it.
        window: the observed frames it was made from.
        values: in the data's units (None: a field whose values take no memory).
        requested: times in nanoseconds.
        queries: the query points.
    """
    shape = (len(requested), len(queries), len(trained.channels))
    metadata: dict[str, Any] = dict(
        times=requested,
        points=queries,
        channels=trained.channels,
        units=trained.units,
        calendar=window.calendar,
        reference_time=int(window.times[-1]),
        attrs={
            **{key: text for key, text in window.attrs.items() if key.lower() in KEPT_ATTRIBUTES},
            "title": f"Forecast by {trained.config.model}",
            "source": f"stonet, trained on {trained.dataset}",
        },
        channel_attrs=window.channel_attrs,
        sites=support(window, queries, trained.config.graph.decoder_radius),
    )
    if values is None:
        empty, missing = np.broadcast_to(np.float32("nan"), shape), np.broadcast_to(False, shape)
        return Field.trusted(values=empty, mask=missing, notes=(), **metadata)
    notes = support_notes(metadata["sites"], queries, trained.config.graph.decoder_radius)
    return Field(values=values, notes=notes, **metadata)


def support(
    window: Field, queries: Points, radius: float | None
) -> dict[str, Float64[np.ndarray, " query"]]:
    """How well observations support a forecast at each query.

    Args:
        window: the observed frames.
        queries: the query points.
        radius: of the decoder (None: unlimited).

    Returns:
        `nearest_observation`: the distance of the nearest observed point, in km on a sphere.
        `support`: 0 at a point that was observed, 1 within the radius of one, else 2.
    """
    observed_points = np.flatnonzero(window.observed.any((0, 2)))
    if not len(observed_points):
        unknown, unsupported = np.full(len(queries), np.nan), np.full(len(queries), 2.0)
        return {"nearest_observation": unknown, "support": unsupported}
    nodes = window.points.take(observed_points)
    closest = nearest_nodes(queries, nodes)[1][:, 0]
    distance = nodes.geometry.distance(queries.embedded, nodes.embedded[closest])
    within = distance <= (np.inf if radius is None else radius * (1 + SLACK))
    observed = own_nodes(queries, nodes) < len(nodes)
    unit = EARTH_RADIUS_KM if nodes.kind == "sphere" else 1.0
    levels = np.where(observed, 0.0, np.where(within, 1.0, 2.0))
    return {"nearest_observation": distance * unit, "support": levels}


def _in_bytes(memory: int | str | None) -> int | None:
    return parse_size(memory) if isinstance(memory, str) else memory
