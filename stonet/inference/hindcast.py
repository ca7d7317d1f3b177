"""Hindcasts: a forecast from every time of a long series, from disk to disk, in bounded memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float32, Int64

from stonet.data.batch import Batch, make_batch
from stonet.data.cf import outline_of_many
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.data.windows import Windows
from stonet.errors import DataError, UsageError
from stonet.inference.forecast import (
    OLD,
    as_field,
    check_fits,
    check_kind,
    latest_frames,
    latest_window,
)
from stonet.inference.session import QUERIES, Session, cut, windows_of
from stonet.io.zarr_writer import ZarrWriter
from stonet.system import distributed
from stonet.system.progress import report_progress
from stonet.system.resources import trim_memory
from stonet.training.run_folder import pack
from stonet.training.trained_model import TrainedModel

if TYPE_CHECKING:
    import xarray as xr

CHUNK = 2**20  # numbers of a variable that are stored together
MOST = 64  # forecasts that are stored together
SEEN = 2**20  # sensors of all windows whose frames are encoded together
GLANCE = 16  # frames by which data are told from other data
DIMS = ("forecast_reference_time", "forecast_period", "station")


def hindcast(
    run: TrainedModel,
    field: Field,
    path: str | Path,
    step: int | None = None,
    at: Points | None = None,
    seen: Int64[np.ndarray, " seen"] | None = None,
    resume: bool = False,
) -> tuple[int, int, int]:
    """Forecasts from all issue times into a Zarr store; its dims are `DIMS`.

    Each equals `stonet.inference.forecast.forecast` of the field up to that time; where nothing
    was observed in the window, it is missing. Processes started by torchrun share the issue
    times.

    Args:
        run: a trained model.
        field: observations, in memory or on disk; they are read as they are needed.
        path: of the store, ending in .zarr.
        step: nanoseconds between two issue times, counted from midnight (None: every frame).
        at: where to ask (None: at the field's points).
        seen: positions of the points that are given to the model (None: all).
        resume: go on with interrupted work.

    Returns:
        the number of issue times, of leads and of points.
    """
    check_fits(run, field)
    past = _Past(run, field, seen)
    queries = past.nodes if at is None else at
    check_kind(past.nodes, queries)
    issues = _issues(run, field, step)
    leads, width = run.time_spec.horizon, len(queries)
    block = int(np.clip(CHUNK // (leads * width), 1, MOST))
    block = min(block, -(-len(issues) // distributed.size()))
    writer = ZarrWriter(Path(path), (block, min(width, CHUNK)))
    first = past.field(int(issues[0]))
    like = as_field(run, first, None, past.ask(issues[:1])[0], queries)
    like = Field.trusted(**vars(like) | {"sites": {}})  # each forecast has its own
    outline, channels = outline_of_many(like, field.times[issues])
    writer.begin(outline, channels, DIMS, _mark(past, outline, block), resume)
    session = Session(run, past.nodes)
    mine = range(distributed.rank() * block, len(issues), distributed.size() * block)
    most = max(1, SEEN // len(past.nodes))
    try:
        for number, start in enumerate(mine):
            if not writer.has((start, 0, 0)):
                chosen = issues[start : start + block]
                groups = (chosen[i : i + most] for i in range(0, len(chosen), most))
                found = [_forecasts(session, past, group, queries) for group in groups]
                writer.write((start, 0, 0), np.concatenate(found))
                trim_memory()
            report_progress(number + 1, len(mine))
        writer.finish()
    finally:
        writer.release()
    return len(issues), leads, width


@dataclass(frozen=True)
class _Past:
    """What the model may see at each issue time, read from the field when it is needed."""

    run: TrainedModel
    whole: Field
    seen: Int64[np.ndarray, " seen"] | None

    @property
    def nodes(self) -> Points:
        return self.whole.points if self.seen is None else self.whole.points.take(self.seen)

    def ask(self, issues: Int64[np.ndarray, " issue"]) -> Int64[np.ndarray, "issue lead"]:
        leads = self.run.time_spec.step * np.arange(1, self.run.time_spec.horizon + 1)
        return self.whole.times[issues][:, None] + leads

    def field(self, issue: int) -> Field:
        """The frames that a forecast from that frame on can see."""
        part = self.whole.between(issue + 1 - self.run.time_spec.past, issue + 1)
        return part if self.seen is None else part.take(self.seen)

    def stretched(self, issues: Int64[np.ndarray, " issue"]) -> np.ndarray:
        """Whether the window reaches further back than what still says something."""
        time_spec, times = self.run.time_spec, self.whole.times
        return (
            times[issues + 1 - time_spec.past]
            <= times[issues] - OLD * time_spec.past * time_spec.step
        )

    def silent(self, issues: Int64[np.ndarray, " issue"]) -> np.ndarray:
        """Whether nothing was observed in the window."""
        windows = (latest_frames(self.run, self.field(int(issue))) for issue in issues)
        return np.array([not window.observed.any() for window in windows])

    def batch(self, issues: Int64[np.ndarray, " issue"]) -> Batch:
        """The windows of these issue times; a frame that several see is there once."""
        time_spec = self.run.time_spec
        past = issues[:, None] + np.arange(1 - time_spec.past, 1)
        window_time = self.run.config.network.window_time
        windows = Windows(
            (self.whole,), self.run.scaler, self.whole.times, issues, time_spec, nodes=self.seen
        )
        return make_batch(
            windows.at, self.whole.times, past, self.ask(issues), time_spec, window_time
        )


def _forecasts(
    session: Session, past: _Past, issues: Int64[np.ndarray, " issue"], queries: Points
) -> Float32[np.ndarray, "issue lead query channel"]:
    """All forecasts from these issue times, in the data's units."""
    run = session.run
    shape = (len(issues), run.time_spec.horizon, len(queries), len(run.channels))
    result = np.full(shape, np.nan, np.float32)
    most = max(1, QUERIES // max(len(queries), len(past.nodes)))
    asked = list(_encoded(session, past, issues, most))
    for start in range(0, len(queries), QUERIES):
        stop = min(start + QUERIES, len(queries))
        piece = queries if len(queries) <= QUERIES else cut(queries, start, stop)
        for rows, encoded, batch in asked:
            values = session.decode(encoded, batch, piece).numpy()
            result[rows, :, start:stop] = run.scaler.denormalise(values)
    return result


def _encoded(
    session: Session, past: _Past, issues: Int64[np.ndarray, " issue"], most: int
) -> Iterator[tuple[Int64[np.ndarray, " row"], Any, Batch]]:
    """The encoded past of all issue times that have one, at `most` so many together."""
    silent, stretched = past.silent(issues), past.stretched(issues)
    for row in np.flatnonzero(stretched & ~silent):  # with frames that count as missing
        window, ask = past.field(int(issues[row])), past.ask(issues[[row]])[0]
        batch = latest_window(past.run, window, ask)
        yield np.array([row]), session.encode(batch), batch
    plain = np.flatnonzero(~stretched & ~silent)
    groups = [plain[i : i + most] for i in range(0, len(plain), most)]
    if session.model.frame_wise and groups:  # frames are encoded once for all of them
        every = past.batch(issues[plain])
        encoded = session.encode(every)
        for number, rows in enumerate(groups):
            chosen = slice(number * most, number * most + len(rows))
            yield rows, encoded, windows_of(every, chosen)
        return
    for rows in groups:
        batch = past.batch(issues[rows])
        yield rows, session.encode(batch), batch


def _issues(run: TrainedModel, field: Field, step: int | None) -> Int64[np.ndarray, " issue"]:
    """Positions of the frames that a forecast starts from: those with a window before them."""
    past, times = run.time_spec.past, field.times
    if len(times) < past:
        raise DataError(
            f"The data have {len(times)} frames; this model looks at {past} before each forecast. "
            "Give a longer series."
        )
    chosen = np.arange(len(times))
    if step is not None:
        if step < 1:
            raise UsageError("Issue times need a step of more than nothing, such as '6h'.")
        turn = times // step
        chosen = np.flatnonzero(np.diff(turn, prepend=turn[0] - 1))  # the first frame of each
    chosen = chosen[chosen >= past - 1]
    if not len(chosen):
        raise DataError(
            f"No issue time has {past} frames before it. Give a longer series or a shorter step."
        )
    return chosen


def _mark(past: _Past, outline: xr.Dataset, block: int) -> str:
    """What tells one piece of work from another: weights, data, points, times, how it is cut."""
    seal = hashlib.sha256(pack(past.run.model.state_dict(), {}))
    seal.update(past.nodes.coordinates.tobytes())
    for frame in np.unique(np.linspace(0, len(past.whole.times) - 1, GLANCE).astype(int)):
        seen = past.whole.between(int(frame), int(frame) + 1)
        seal.update(np.where(seen.observed, seen.values, 0).tobytes() + seen.observed.tobytes())
    for name in sorted(map(str, outline.coords)):
        values = outline[name].values
        seal.update(values.tobytes() if values.dtype.kind != "O" else repr(list(values)).encode())
    return f"{seal.hexdigest()} by {block}"
