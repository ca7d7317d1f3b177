"""From observations to a forecast: any points, any times. Command line and server call this."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from scipy.spatial import cKDTree
from torch import Tensor

from stonet.clock import parse_duration
from stonet.errors import DataError, UsageError
from stonet.field import Field, time_label
from stonet.forecaster import Forecaster, Scene
from stonet.geometry import EARTH_RADIUS_KM, Points
from stonet.neighbours import SLACK, own_nodes
from stonet.run import Run
from stonet.windows import Batch, make_batch

QUERIES = 8192  # answered at a time, so that memory does not grow with the number of questions
REACH = 1.25  # how far beyond the trained horizon one may ask
OLD = 1.5  # inputs older than this many windows say nothing

Times = Sequence[str | int | np.datetime64]


def forecast(run: Run, field: Field, at: Points | None = None, times: Times | None = None) -> Field:
    """The future of `field`, in its own units, at `at` and `times`.

    Args:
        run: a trained model.
        field: observations; the forecast is issued at its last time. Its points need not be the
            training points: new ones with a past simply join.
        at: where to ask (None: at the field's points). Points without a past are answered too.
        times: leads like "+90min", dates, or nanoseconds (None: the trained lead times).
    """
    check_fits(run, field)
    issue = int(field.times[-1])
    ask = _asked_times(run, issue, times, field.calendar)
    batch = _latest(run, field, ask)
    queries = field.points if at is None else at
    if queries.kind != field.points.kind:
        raise UsageError(
            f"Asked at points on a {queries.kind}; the data lie on a {field.points.kind}."
        )
    values = answer(run.model, batch, field.points, queries)[0]
    return Field(
        values=run.scaler.denormalise(values.numpy()),
        times=ask,
        points=queries,
        channels=run.channels,
        units=run.units,
        calendar=field.calendar,
        reference_time=issue,
        attrs={
            "title": f"Forecast by {run.config.model}",
            "source": f"stonet, trained on {run.dataset}",
        },
        sites=trust(_latest_frames(run, field), queries, run.config.graph.decoder_radius),
    )


def trust(
    window: Field, queries: Points, radius: float | None
) -> dict[str, Float64[np.ndarray, " query"]]:
    """What stands behind an answer: how far the nearest observed point is, and of which kind.

    Support is 0 at a point that was observed in the window, 1 within the radius of one, else 2.
    """
    nodes = window.points.take(np.flatnonzero(window.observed.any((0, 2))))
    nearest = cKDTree(nodes.embedded).query(queries.embedded)[1]
    distance = nodes.geometry.distance(queries.embedded, nodes.embedded[nearest])
    within = distance <= (np.inf if radius is None else radius * (1 + SLACK))
    observed = own_nodes(queries, nodes) < len(nodes)
    unit = EARTH_RADIUS_KM if nodes.kind == "sphere" else 1.0
    support = np.where(observed, 0.0, np.where(within, 1.0, 2.0))
    return {"nearest_observation": distance * unit, "support": support}


@torch.inference_mode()
def answer(
    model: Forecaster, batch: Batch, nodes: Points, queries: Points
) -> Float[Tensor, "batch future query channel"]:
    """The normalised answer: the past is encoded once, queries are taken by the thousand."""
    model.eval()
    graph = model.graph(nodes)
    encoded = model.encode(batch, Scene(graph, None))
    parts = []
    for start in range(0, len(queries), QUERIES):
        chunk = queries
        if len(queries) > QUERIES:
            chunk = queries.take(np.arange(start, min(start + QUERIES, len(queries))))
        parts.append(model.decode(encoded, batch, Scene(graph, model.links(nodes, chunk))))
    return torch.cat(parts, dim=2)


def check_fits(run: Run, field: Field) -> None:
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
    if field.calendar != run.clock.calendar:
        kinds = {True: "dates", False: "seconds from zero"}
        raise DataError(
            f"The data's times are {kinds[field.calendar]}; this model was trained on "
            f"{kinds[run.clock.calendar]}."
        )
    if not _latest_frames(run, field).observed.any():
        raise DataError(
            f"No value was observed in the last {run.clock.past} steps before "
            f"{time_label(int(field.times[-1]), field.calendar)}: there is nothing to forecast "
            "from. Cut the field where its last values are."
        )


def _latest_frames(run: Run, field: Field) -> Field:
    """The last frames, as many as the model looks back to, but no older ones than that."""
    clock = run.clock
    recent = np.flatnonzero(field.times > field.times[-1] - OLD * clock.past * clock.step)
    return field.between(int(recent[-clock.past :][0]), len(field.times))


def _latest(run: Run, field: Field, ask: Int64[np.ndarray, " future"]) -> Batch:
    """One window that ends with the field's last frame; frames that it lacks count as missing."""
    clock, part = run.clock, _latest_frames(run, field)
    lacking = clock.past - len(part.times)
    earlier = part.times[0] - clock.step * np.arange(lacking, 0, -1)
    values = np.concatenate(
        [np.zeros((lacking, *part.values.shape[1:]), np.float32), run.scaler.normalise(part.values)]
    )
    observed = np.concatenate([np.zeros((lacking, *part.values.shape[1:]), bool), part.observed])
    return make_batch(
        lambda i: (torch.from_numpy((values * observed)[i]), torch.from_numpy(observed[i])),
        np.concatenate([earlier, part.times]),
        np.arange(clock.past)[None],
        ask[None],
        clock,
        run.config.network.window_time,
    )


def _asked_times(
    run: Run, issue: int, times: Times | None, calendar: bool
) -> Int64[np.ndarray, " future"]:
    clock = run.clock
    if isinstance(times, str):
        times = [times]
    if times is None:
        return issue + clock.step * np.arange(1, clock.horizon + 1)
    asked = np.array([_one_time(issue, time, calendar) for time in times], dtype=np.int64)
    last = issue + int(REACH * clock.horizon * clock.step)
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


def _one_time(issue: int, time: str | int | np.datetime64, calendar: bool) -> int:
    if isinstance(time, str) and time.startswith("+"):
        return issue + parse_duration(time[1:])
    if isinstance(time, (int, np.integer)):
        return int(time)
    if not calendar:
        raise UsageError(
            f"'{time}' is no time of a field without a calendar; write a lead such as '+0.004s'."
        )
    try:
        return int(np.datetime64(str(time).removesuffix("Z"), "ns").astype(np.int64))
    except ValueError:
        raise UsageError(
            f"'{time}' is no time; write a lead such as '+1h30min' or a date such as "
            "2026-11-16T04:17."
        ) from None
