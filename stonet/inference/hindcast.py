"""Hindcast: a forecast from every time of a long series, from disk to disk, in bounded memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float32, Int64

from stonet.calibration.apply import Corrector, Request
from stonet.calibration.conformal import Calibration
from stonet.calibration.past_forecasts import PastForecasts
from stonet.data.batch import Batch, make_batch
from stonet.data.cf import outline_of_many
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.data.grid import Grid
from stonet.data.quantile_field import with_quantiles
from stonet.data.windows import Windows
from stonet.errors import DataError, UsageError
from stonet.inference.calibrated import required
from stonet.inference.forecast import (
    MAX_AGE,
    as_field,
    check_geometry,
    check_step,
    latest_batch,
    latest_frames,
)
from stonet.inference.inputs import check_inputs
from stonet.inference.session import MAX_QUERIES, Session, select_queries, select_windows
from stonet.io.zarr_writer import ZarrWriter
from stonet.models.forecaster import Encoding
from stonet.system import distributed
from stonet.system.progress import report_progress
from stonet.system.resources import trim_memory
from stonet.training.run_folder import pack
from stonet.training.trained_model import TrainedModel

if TYPE_CHECKING:
    import xarray as xr

FINGERPRINT_FRAMES = 16  # evenly spread, by which other data are recognised
DIMS = ("forecast_reference_time", "forecast_period", "station")
Issues = Int64[np.ndarray, " issue"]  # positions of the frames that forecasts start from


@dataclass(frozen=True)
class Limits:
    """How much is stored or computed together, which bounds the memory.

    Args:
        chunk_values: of a variable in a chunk of the store.
        chunk_forecasts: in a chunk of the store.
        encoded_sensors: of all windows, encoded together.
        decoded_queries: of all windows, decoded together.
    """

    chunk_values: int = 2**20
    chunk_forecasts: int = 64
    encoded_sensors: int = 2**20
    decoded_queries: int = MAX_QUERIES


def hindcast(
    trained: TrainedModel,
    field: Field,
    path: str | Path,
    step: int | None = None,
    at: Points | None = None,
    seen: Int64[np.ndarray, " seen"] | None = None,
    resume: bool = False,
    limits: Limits = Limits(),  # noqa: B008  frozen
    calibration: Calibration | None = None,
    quantiles: Sequence[float] = (),
    feedback: bool = True,
) -> tuple[int, int, int]:
    """Write forecasts from all issue times into a Zarr store with the dimensions `DIMS`.

    Queries on a grid have lat and lon (or y and x) in place of the station. The coordinate time is
    the valid time of each forecast. Each equals `stonet.inference.forecast.forecast` of the field
    up to its issue time; it is missing where nothing was observed in the window. Processes started
    by torchrun share the issue times.

    Args:
        trained: a trained model.
        field: observations, in memory or on disk; frames are read when they are needed.
        path: of the store, ending in .zarr.
        step: nanoseconds between two issue times, counted from midnight (None: every frame).
        at: the query points (None: the field's points).
        seen: positions of the points whose values the model sees (None: all).
        resume: continue an interrupted hindcast.
        limits: bounds of the memory.
        calibration: of the model: forecasts are corrected by the errors known at their issue
            time (None: they are not).
        quantiles: also written, along a dimension before the station (none: the forecast alone).
        feedback: whether forecasts with a calibration are corrected.

    Returns:
        the number of issue times, of leads and of points.

    Raises:
        DataError: if the field does not fit the model, or is too short.
        UsageError: if path, step or points do not fit, or an unfinished store exists.

    Example:
        >>> hindcast(trained, stonet.read("uk.zarr"), "hindcast.zarr", step=6 * 3600 * 10**9)
    """
    trained.check_compatible(field)
    check_step(trained, field)
    check_inputs(trained, field)
    history = _History(trained, field, seen)
    queries = history.nodes if at is None else at
    check_geometry(history.nodes, queries)
    issues = _issue_positions(trained, field, step)
    leads, width = trained.time_spec.horizon, len(queries)
    block = int(np.clip(limits.chunk_values // (leads * width), 1, limits.chunk_forecasts))
    block = min(block, -(-len(issues) // distributed.size()))
    grid = Grid.of(queries)
    outline, channels = _outline(history, issues, queries, grid)
    outline = with_quantiles(outline, tuple(quantiles)) if quantiles else outline
    dims, chunks = _layout(leads, quantiles, width, grid, limits)
    writer = ZarrWriter(Path(path), (block, *chunks))
    correct = _correction(history, calibration, queries, quantiles, feedback)
    mark = f"{_fingerprint(history, outline, block)} {calibration is not None and feedback}"
    writer.begin(outline, channels, dims, mark, resume)
    session = Session(trained, history.nodes, max_queries=limits.decoded_queries)
    starts = range(distributed.rank() * block, len(issues), distributed.size() * block)
    group = max(1, limits.encoded_sensors // len(history.nodes))
    try:
        for number, start in enumerate(starts):
            where = (start, *(0 for _ in dims[1:]))
            if not writer.has(where):
                chosen = issues[start : start + block]
                groups = (chosen[i : i + group] for i in range(0, len(chosen), group))
                forecasts = [_forecasts(session, history, part, queries) for part in groups]
                values = correct(np.concatenate(forecasts), chosen)
                writer.write(where, values if grid is None else grid.scatter_fields(values))
                trim_memory()
            report_progress(number + 1, len(starts))
        writer.finish()
    finally:
        writer.release()
    return len(issues), leads, width


def _outline(
    history: _History, issues: Issues, queries: Points, grid: Grid | None
) -> tuple[xr.Dataset, dict[str, dict[str, Any]]]:
    """The store without the variables of the channels, and the attributes of these."""
    first, times = history.window(int(issues[0])), history.target_times(issues[:1])[0]
    template = as_field(history.trained, first, None, times, queries)
    template = Field.trusted(**vars(template) | {"sites": {}})  # these differ between forecasts
    outline, channels = outline_of_many(template, history.field.times[issues])
    return outline if grid is None else grid.with_dims(outline), channels


def _layout(
    leads: int, quantiles: Sequence[float], width: int, grid: Grid | None, limits: Limits
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The dims of the variables, and the chunks along all but the first."""
    sizes: dict[str, int] = {DIMS[1]: leads} | ({"quantile": len(quantiles)} if quantiles else {})
    if grid is None:
        sizes[DIMS[2]] = min(width, limits.chunk_values)
    else:
        rows, columns = grid.shape
        few = int(np.clip(limits.chunk_values // columns, 1, rows))
        sizes |= dict(zip(grid.dims, (few, columns), strict=True))
    return (DIMS[0], *sizes), tuple(sizes.values())


def _correction(
    history: _History,
    calibration: Calibration | None,
    queries: Points,
    quantiles: Sequence[float],
    feedback: bool,
) -> Callable[[np.ndarray, Issues], np.ndarray]:
    """What turns forecasts into the values that are stored: a correction, or quantiles."""
    if calibration is None and not quantiles:
        return lambda values, issues: values
    past = PastForecasts(history.trained.model, history.trained, history.field, history.seen)
    corrector = Corrector(required(calibration), past, feedback)

    def correct(values: np.ndarray, issues: Issues) -> np.ndarray:
        request = Request(issues, queries, history.target_times(issues))
        corrected, found = corrector.apply(values.astype(np.float64), request, quantiles)
        stored = corrected if found is None else np.moveaxis(found, 0, 2)
        return stored.astype(np.float32)

    return correct


@dataclass(frozen=True)
class _History:
    """The frames that the model sees before each issue time, read when they are needed."""

    trained: TrainedModel
    field: Field
    seen: Int64[np.ndarray, " seen"] | None

    @property
    def nodes(self) -> Points:
        """The points whose values the model sees."""
        return self.field.points if self.seen is None else self.field.points.take(self.seen)

    def target_times(self, issues: Issues) -> Int64[np.ndarray, "issue lead"]:
        """The times that are forecast from each issue time, in nanoseconds."""
        leads = self.trained.time_spec.step * np.arange(1, self.trained.time_spec.horizon + 1)
        return self.field.times[issues][:, None] + leads

    def window(self, issue: int) -> Field:
        """The frames before a forecast."""
        part = self.field.between(issue + 1 - self.trained.time_spec.past, issue + 1)
        return part if self.seen is None else part.take(self.seen)

    def too_old(self, issues: Issues) -> Bool[np.ndarray, " issue"]:
        """Whether some frames of the window are too old to be used."""
        time_spec, times = self.trained.time_spec, self.field.times
        oldest = times[issues] - int(MAX_AGE * time_spec.past * time_spec.step)
        return times[issues + 1 - time_spec.past] <= oldest

    def unobserved(self, issues: Issues) -> Bool[np.ndarray, " issue"]:
        """Whether nothing was observed in the window."""
        windows = (latest_frames(self.trained, self.window(int(issue))) for issue in issues)
        return np.array([not window.observed.any() for window in windows])

    def batch(self, issues: Issues) -> Batch:
        """The windows of these issue times; a frame that several windows share is read once."""
        trained, time_spec, times = self.trained, self.trained.time_spec, self.field.times
        windows = Windows((self.field,), trained.scaler, times, issues, time_spec, nodes=self.seen)
        return make_batch(
            windows.given,
            times,
            issues[:, None] + np.arange(1 - time_spec.past, 1),
            self.target_times(issues),
            time_spec,
        )


def _forecasts(
    session: Session, history: _History, issues: Issues, queries: Points
) -> Float32[np.ndarray, "issue lead query channel"]:
    """The forecasts from these issue times, in the data's units; NaN where there is no input."""
    trained, most = session.trained, session.max_queries
    shape = (len(issues), trained.time_spec.horizon, len(queries), len(trained.channels))
    result = np.full(shape, np.nan, np.float32)
    max_windows = max(1, most // max(len(queries), len(history.nodes)))
    encodings = list(_encodings(session, history, issues, max_windows))
    for start in range(0, len(queries), most):
        stop = min(start + most, len(queries))
        chunk = queries if len(queries) <= most else select_queries(queries, start, stop)
        for rows, encoded, batch in encodings:
            values = session.decode(encoded, batch, chunk).numpy()
            result[rows, :, start:stop] = trained.scaler.denormalise(values)
    return result


def _encodings(
    session: Session, history: _History, issues: Issues, max_windows: int
) -> Iterator[tuple[Int64[np.ndarray, " row"], Encoding, Batch]]:
    """(positions among `issues`, encoding, batch) of groups of at most `max_windows` windows.

    Windows without any observed value are left out.
    """
    unobserved, too_old = history.unobserved(issues), history.too_old(issues)
    for row in np.flatnonzero(too_old & ~unobserved):  # one by one, old frames as missing
        window, requested = history.window(int(issues[row])), history.target_times(issues[[row]])[0]
        batch = latest_batch(history.trained, window, requested)
        yield np.array([row]), session.encode(batch), batch
    regular = np.flatnonzero(~too_old & ~unobserved)
    groups = [regular[i : i + max_windows] for i in range(0, len(regular), max_windows)]
    if session.model.frame_wise and groups:  # shared frames are encoded once
        shared = history.batch(issues[regular])
        encoded = session.encode(shared)
        for number, rows in enumerate(groups):
            chosen = slice(number * max_windows, number * max_windows + len(rows))
            yield rows, encoded, select_windows(shared, chosen)
        return
    for rows in groups:
        batch = history.batch(issues[rows])
        yield rows, session.encode(batch), batch


def _issue_positions(trained: TrainedModel, field: Field, step: int | None) -> Issues:
    """Positions of the frames that forecasts start from: those with enough frames before."""
    past, times = trained.time_spec.past, field.times
    if len(times) < past:
        raise DataError(
            f"The data have {len(times)} frames; this model needs {past} before each forecast. "
            "Give a longer series."
        )
    positions = np.arange(len(times))
    if step is not None:
        if step < 1:
            raise UsageError(f"step is {step}; expected a positive duration such as '6h'.")
        interval = times // step
        positions = np.flatnonzero(np.diff(interval, prepend=interval[0] - 1))  # first of each
    positions = positions[positions >= past - 1]
    if not len(positions):
        raise DataError(
            f"No issue time has {past} frames before it. Give a longer series or a shorter step."
        )
    return positions


def _fingerprint(history: _History, outline: xr.Dataset, block: int) -> str:
    """A hash of weights, data, points, times and blocks, by which a resumed hindcast is checked."""
    digest = hashlib.sha256(pack(history.trained.model.state_dict(), {}))
    digest.update(history.nodes.coordinates.tobytes())
    last = len(history.field.times) - 1
    for position in np.unique(np.linspace(0, last, FINGERPRINT_FRAMES).astype(int)):
        frame = history.field.between(int(position), int(position) + 1)
        values = np.where(frame.observed, frame.values, 0)
        digest.update(values.tobytes() + frame.observed.tobytes())
    for name in sorted(map(str, outline.coords)):
        values = outline[name].values
        digest.update(values.tobytes() if values.dtype.kind != "O" else repr(list(values)).encode())
    return f"{digest.hexdigest()} by {block}"
