"""Past forecasts: what a model would have forecast earlier, and by how much it would have erred.

Corrections and intervals learn from errors that were known at the issue time. For a forecast from
time t these are the errors of forecasts from t - S, t - 2 S, ..., t - MEMORY S. The spacing S is
at least the horizon, so that every truth is known at t, and whole days where the data have hours,
so that the errors are of the same hours.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float32, Int64

from stonet.data.batch import Batch, make_batch
from stonet.data.durations import DAY
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.data.windows import MAX_STRETCH, Windows
from stonet.models.forecaster import Forecaster, Graphs
from stonet.training.trained_model import TrainedModel

MEMORY = 28  # earlier forecasts that a forecast learns from
NEAR = 1e-3  # of a step: difference of times that count as equal
MAX_WINDOWS, MAX_POINTS = 16, 2**16  # forecast together; points are those of all windows
MAX_CACHED_BYTES = 2**28  # of errors that are kept

Issues = Int64[np.ndarray, " issue"]  # positions of the newest frames that forecasts are made from
Errors = Float32[np.ndarray, "issue lead point channel"]  # truth - forecast, NaN where unknown
AllErrors = Float32[np.ndarray, "forecast lead point channel"]  # of earlier forecasts, too


def spacing(time_spec: TimeSpec) -> int:
    """Nanoseconds between two forecasts whose errors are compared.

    Args:
        time_spec: of the model.
    """
    horizon = time_spec.horizon * time_spec.step
    return -(-horizon // DAY) * DAY if time_spec.daily else horizon


def frames_needed(time_spec: TimeSpec, memory: int = MEMORY) -> int:
    """Frames of a regular series that a forecast and its earlier forecasts are made from.

    Args:
        time_spec: of the model.
        memory: number of earlier forecasts.
    """
    return time_spec.past + memory * round(spacing(time_spec) / time_spec.step)


def positions_at(
    times: Int64[np.ndarray, " time"], wanted: Int64[np.ndarray, "*shape"], tolerance: int
) -> Int64[np.ndarray, "*shape"]:
    """Positions of the frames at these times; -1 where there is none.

    Args:
        times: of the frames, increasing.
        wanted: times to find.
        tolerance: nanoseconds by which they may differ.
    """
    after = np.searchsorted(times, wanted - tolerance).clip(max=len(times) - 1)
    return np.where(np.abs(times[after] - wanted) <= tolerance, after, -1)


class PastForecasts:
    """Errors of a model's forecasts from given times of a field, computed when they are needed.

    Args:
        model: whose forecasts these are.
        trained: gives the scaler and the times.
        field: observations in their own units.
        nodes: positions of the points whose history the model is given (None: all).
        targets: positions of the points that are forecast (None: the nodes).
        graphs: of the model for these points (None: built at the first forecast).

    Example:
        >>> past = PastForecasts(trained.model, trained, field)
        >>> past.errors(past.valid_issues()[-10:])
    """

    def __init__(
        self,
        model: Forecaster,
        trained: TrainedModel,
        field: Field,
        nodes: Int64[np.ndarray, " node"] | None = None,
        targets: Int64[np.ndarray, " target"] | None = None,
        graphs: Graphs | None = None,
    ) -> None:
        self.model, self.trained, self.field = model.eval(), trained, field
        self.nodes = np.arange(len(field.points)) if nodes is None else nodes
        self.targets = self.nodes if targets is None else targets
        self.tolerance = int(NEAR * trained.time_spec.step)
        self._graphs = graphs
        self._cache: dict[int, Float32[np.ndarray, "lead point channel"]] = {}

    @property
    def points(self) -> Points:
        """The points that are forecast."""
        return self.field.points.take(self.targets)

    def valid_issues(self) -> Issues:
        """All positions that a forecast can be made from: enough frames before, no long gap."""
        past, times = self.trained.time_spec.past, self.field.times
        last = np.arange(past - 1, len(times))
        span = times[last] - times[last - past + 1]
        return last[span <= MAX_STRETCH * (past - 1) * self.trained.time_spec.step]

    def earlier(self, issues: Issues, memory: int = MEMORY) -> Int64[np.ndarray, "issue memory"]:
        """Positions of the earlier forecasts of each one, the newest first; -1: there is none.

        Args:
            issues: positions of the newest frames.
            memory: number of earlier forecasts.
        """
        if not memory:
            return np.zeros((len(issues), 0), dtype=np.int64)
        back = spacing(self.trained.time_spec) * np.arange(1, memory + 1)
        wanted = self.field.times[issues][:, None] - back
        found = positions_at(self.field.times, wanted, self.tolerance)
        return np.where(np.isin(found, self.valid_issues()), found, -1)

    def errors(self, issues: Issues) -> Errors:
        """The errors of the forecasts from these frames; forecasts made before are reused.

        Args:
            issues: positions of the newest frames.
        """
        missing = np.setdiff1d(issues, list(self._cache))
        size = max(1, min(MAX_WINDOWS, MAX_POINTS // max(len(self.nodes), len(self.targets))))
        for start in range(0, len(missing), size):
            chosen = missing[start : start + size]
            self._cache.update(zip(chosen.tolist(), self._errors(chosen), strict=True))
        shape = (
            self.trained.time_spec.horizon,
            len(self.targets),
            len(self.trained.channels),
        )
        found = [self._cache[int(issue)] for issue in issues]
        result = np.stack(found) if found else np.zeros((0, *shape), np.float32)
        self._forget(issues)
        return result

    def reuse(self, other: PastForecasts) -> None:
        """Take over graphs and errors computed before, of the same points in another field.

        Args:
            other: of a field with some of the same frames.
        """
        self._graphs = other._graphs
        if other._cache:
            issues = np.array(list(other._cache))
            found = positions_at(self.field.times, other.field.times[issues], 0)
            pairs = zip(found.tolist(), other._cache.values(), strict=True)
            self._cache = {issue: errors for issue, errors in pairs if issue >= 0}

    def _forget(self, used: Issues) -> None:
        """Drop the oldest errors where they take too much memory."""
        size = next(iter(self._cache.values())).nbytes if self._cache else 1
        surplus = len(self._cache) - max(MAX_CACHED_BYTES // size, 1)
        for issue in sorted(self._cache)[: max(surplus, 0)]:
            del self._cache[issue]

    def _errors(self, issues: Issues) -> Errors:
        """The errors of one batch."""
        batch, field, leads = self.batch(issues), self.field, self.trained.time_spec.horizon
        device = next(iter(self.model.state_dict().values()), torch.zeros(0)).device
        with torch.inference_mode():
            forecast = self.model(batch.to(device), self.graphs).forecast
        values = self.trained.scaler.in_units(forecast.cpu()).numpy()
        values[~batch.known.flatten(1).any(1).numpy()] = np.nan  # nothing to forecast from
        wanted = field.times[issues][:, None] + self._leads()
        frames = positions_at(field.times, wanted, self.tolerance)
        truth = field.values[frames.ravel()[:, None], self.targets]
        unknown = (frames.ravel() < 0)[:, None, None] | self.trained.scaler.far_outside(truth)
        truth = np.where(unknown, np.nan, truth)
        return (truth.reshape(len(issues), leads, *truth.shape[1:]) - values).astype(np.float32)

    def batch(self, issues: Issues) -> Batch:
        """The inputs of the forecasts from these frames.

        Args:
            issues: positions of the newest frames.
        """
        trained, times = self.trained, self.field.times
        windows = Windows(
            (self.field,), trained.scaler, times, issues, trained.time_spec, nodes=self.nodes
        )
        return make_batch(
            windows.given,
            times,
            issues[:, None] + np.arange(1 - trained.time_spec.past, 1),
            times[issues][:, None] + self._leads(),
            trained.time_spec,
        )

    @property
    def graphs(self) -> Graphs:
        """The model's graphs, built at the first forecast."""
        if self._graphs is None:
            nodes = self.field.points.take(self.nodes)
            self._graphs = self.model.graphs(nodes, self.points)
        return self._graphs

    def _leads(self) -> Int64[np.ndarray, " lead"]:
        """The trained leads in nanoseconds."""
        return self.trained.time_spec.step * np.arange(1, self.trained.time_spec.horizon + 1)
