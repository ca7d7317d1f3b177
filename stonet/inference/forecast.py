"""From observations to a forecast: any points, any times. Command line and server call this."""

from __future__ import annotations

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
from stonet.errors import DataError, UsageError
from stonet.graph.neighbours import SLACK, nearest_nodes, own_nodes
from stonet.inference.session import QUERIES, ChunkSize, Session, cut
from stonet.io.zarr_writer import filled
from stonet.system import distributed
from stonet.system.progress import tell
from stonet.system.resources import give_back
from stonet.system.spill import parse_size
from stonet.training.trained_model import TrainedModel

REACH = 1.25  # how far beyond the trained horizon one may ask
OLD = 1.5  # inputs older than this many windows say nothing
FINER = 0.5  # of the trained step: frames that are closer than that are of another kind
HELD = 16  # bytes for each number of an answer in memory: as it comes, checked, and written


def forecast(
    run: TrainedModel,
    field: Field,
    at: Points | None = None,
    times: Times | None = None,
    memory: int | str | None = None,
    session: Session | None = None,
) -> Field:
    """The future of `field`, in its own units, at `at` and `times`.

    Args:
        run: a trained model.
        field: observations; the forecast is issued at its last time. Its points need not be the
            training points: new ones with a past simply join.
        at: where to ask (None: at the field's points). Points without a past are answered too.
        times: leads like "+90min", dates, or nanoseconds (None: the trained lead times).
        memory: bytes, or a size such as "2G", that the whole process may take.
        session: of this run and these points, if one is at hand: it spares making the graph.
    """
    queries, ask, batch = _asked(run, field, at, times)
    if session is None:
        session = Session(run, field.points)
    elif session.run is not run or session.nodes != field.points:
        raise UsageError("The session is of another run or of other points than the field.")
    size = len(ask) * len(queries) * len(run.channels)
    encoded, pace = session.encode(batch), ChunkSize(_bytes(memory), HELD * size)
    values = np.empty((len(ask), len(queries), len(run.channels)), np.float32)
    done = 0
    for part in session.answer(encoded, batch, queries, pace):
        values[:, done : done + part.shape[2]] = part[0]
        done += part.shape[2]
        tell(done, len(queries))
    return as_field(run, latest_frames(run, field), values, ask, queries)


def forecast_to_file(
    run: TrainedModel,
    field: Field,
    path: str | Path,
    at: Points | None = None,
    times: Times | None = None,
    memory: int | str | None = None,
) -> tuple[int, int]:
    """As `forecast`, into a .zarr or .nc, piece by piece; the answer is never held as a whole.

    Processes that torchrun started share the queries of a Zarr store. Gives the number of times and
    of points.
    """
    queries, ask, batch = _asked(run, field, at, times)
    session = Session(run, field.points)
    chunk = min(QUERIES, -(-len(queries) // distributed.size()))
    empty = as_field(run, latest_frames(run, field), None, ask, queries)
    with filled(Path(path), (len(ask), chunk), *outline(empty)) as write:
        encoded, pace = session.encode(batch), ChunkSize(_bytes(memory))
        mine = range(distributed.rank() * chunk, len(queries), distributed.size() * chunk)
        for number, start in enumerate(mine):
            part = cut(queries, start, min(start + chunk, len(queries)))
            found = list(session.answer(encoded, batch, part, pace))
            write((0, start), np.concatenate(found, axis=2)[0])
            give_back()
            tell(number + 1, len(mine))
    return len(ask), len(queries)


def as_field(
    run: TrainedModel,
    window: Field,
    values: Float32[np.ndarray, "future query channel"] | None,
    ask: Int64[np.ndarray, " future"],
    queries: Points,
) -> Field:
    """The answer with all that is known of it; without values, one that takes no room."""
    shape = (len(ask), len(queries), len(run.channels))
    known: dict[str, Any] = dict(
        times=ask,
        points=queries,
        channels=run.channels,
        units=run.units,
        calendar=window.calendar,
        reference_time=int(window.times[-1]),
        attrs={
            "title": f"Forecast by {run.config.model}",
            "source": f"stonet, trained on {run.dataset}",
        },
        sites=support(window, queries, run.config.graph.decoder_radius),
    )
    if values is None:
        nothing = np.broadcast_to(np.float32("nan"), shape), np.broadcast_to(False, shape)
        return Field.trusted(values=nothing[0], mask=nothing[1], notes=(), **known)
    return Field(values=values, **known)


def _asked(
    run: TrainedModel, field: Field, at: Points | None, times: Times | None
) -> tuple[Points, Int64[np.ndarray, " future"], Batch]:
    """Where, when, and from what; refused if that does not fit the run."""
    check_fits(run, field)
    check_observed(run, field)
    queries = field.points if at is None else at
    check_kind(field.points, queries)
    ask = requested_times(run, int(field.times[-1]), times, field.calendar)
    return queries, ask, latest_window(run, field, ask)


def check_kind(nodes: Points, queries: Points) -> None:
    """Refuse questions on another geometry."""
    if queries.kind != nodes.kind:
        raise UsageError(f"Asked at points on a {queries.kind}; the data lie on a {nodes.kind}.")


def support(
    window: Field, queries: Points, radius: float | None
) -> dict[str, Float64[np.ndarray, " query"]]:
    """What stands behind an answer: how far the nearest observed point is, and of which kind.

    Support is 0 at a point that was observed in the window, 1 within the radius of one, else 2.
    """
    there = np.flatnonzero(window.observed.any((0, 2)))
    if not len(there):  # nothing stands behind it
        nothing = np.full(len(queries), np.nan), np.full(len(queries), 2.0)
        return dict(zip(("nearest_observation", "support"), nothing, strict=True))
    nodes = window.points.take(there)
    closest = nearest_nodes(queries, nodes)[1][:, 0]
    distance = nodes.geometry.distance(queries.embedded, nodes.embedded[closest])
    within = distance <= (np.inf if radius is None else radius * (1 + SLACK))
    observed = own_nodes(queries, nodes) < len(nodes)
    unit = EARTH_RADIUS_KM if nodes.kind == "sphere" else 1.0
    support = np.where(observed, 0.0, np.where(within, 1.0, 2.0))
    return {"nearest_observation": distance * unit, "support": support}


def check_fits(run: TrainedModel, field: Field) -> None:
    """Refuse data that the model was not made for, saying what differs."""
    if field.channels != run.channels:
        raise DataError(
            f"The data hold {field.channels}; this model forecasts {run.channels}. "
            "Select or rename the variables so that they agree, in this order."
        )
    if field.units != run.units:
        raise DataError(
            f"The data are in {field.units}; this model was trained in {run.units}. Convert them."
        )
    if field.points.kind != run.nodes.kind:
        raise DataError(
            f"The data lie on a {field.points.kind}; this model was trained on a {run.nodes.kind}. "
            "Give coordinates of the same kind."
        )
    if field.calendar != run.time_spec.calendar:
        kinds = {True: "dates", False: "seconds from zero"}
        raise DataError(
            f"The data's times are {kinds[field.calendar]}; this model was trained on "
            f"{kinds[run.time_spec.calendar]}."
        )
    check_step(run, field)


def check_step(run: TrainedModel, field: Field) -> None:
    """Refuse much denser frames: the last few of them are no past that the model knows."""
    if len(field.times) > 2 and field.step < FINER * run.time_spec.step:
        step = run.time_spec.step / 1e9
        raise DataError(
            f"The data have a frame every {field.step / 1e9:g} s; this model was trained on one "
            f"every {step:g} s, and the last {run.time_spec.past} frames would tell it little. Read "
            f"them with --every {step:g}s."
        )


def check_observed(run: TrainedModel, field: Field) -> None:
    """Refuse a window in which nothing was observed."""
    if not latest_frames(run, field).observed.any():
        raise DataError(
            f"No value was observed in the last {run.time_spec.past} steps before "
            f"{time_label(int(field.times[-1]), field.calendar)}: there is nothing to forecast "
            "from. Cut the field where its last values are."
        )


def latest_frames(run: TrainedModel, field: Field) -> Field:
    """The last frames, as many as the model looks back to, but no older ones than that."""
    time_spec = run.time_spec
    recent = np.flatnonzero(field.times > field.times[-1] - OLD * time_spec.past * time_spec.step)
    return field.between(int(recent[-time_spec.past :][0]), len(field.times))


def latest_window(run: TrainedModel, field: Field, ask: Int64[np.ndarray, " future"]) -> Batch:
    """One window that ends with the field's last frame; frames that it lacks count as missing."""
    time_spec, part = run.time_spec, latest_frames(run, field)
    lacking = time_spec.past - len(part.times)
    earlier = part.times[0] - time_spec.step * np.arange(lacking, 0, -1)
    values = np.concatenate(
        [
            np.zeros((lacking, *part.values.shape[1:]), np.float32),
            run.scaler.normalise(part._filled()),
        ]
    )
    observed = np.concatenate([np.zeros((lacking, *part.values.shape[1:]), bool), part.observed])
    return make_batch(
        lambda i: (torch.from_numpy((values * observed)[i]), torch.from_numpy(observed[i])),
        np.concatenate([earlier, part.times]),
        np.arange(time_spec.past)[None],
        ask[None],
        time_spec,
        run.config.network.window_time,
    )


def requested_times(
    run: TrainedModel, issue: int, times: Times | None, calendar: bool
) -> Int64[np.ndarray, " future"]:
    """The asked times in nanoseconds, increasing and within reach."""
    time_spec = run.time_spec
    if times is None:
        return issue + time_spec.step * np.arange(1, time_spec.horizon + 1)
    asked = np.array([parse_time(time, calendar, issue) for time in as_list(times)], dtype=np.int64)
    last = issue + int(REACH * time_spec.horizon * time_spec.step)
    wrong = asked[(asked <= issue) | (asked > last)]
    if len(wrong) or not len(asked):
        raise UsageError(
            f"{len(wrong)} of {len(asked)} asked times are out of reach"
            + (f" (first: {time_label(int(wrong[0]), calendar)})" if len(wrong) else "")
            + f"; this model answers after {time_label(issue, calendar)} and up to "
            + f"{time_label(last, calendar)}."
        )
    if (np.diff(asked) <= 0).any():
        raise UsageError("Asked times must increase; sort them and leave out duplicates.")
    return asked


def _bytes(memory: int | str | None) -> int | None:
    return parse_size(memory) if isinstance(memory, str) else memory
