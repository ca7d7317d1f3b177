"""Samples: forecasts of the validation part whose errors a calibration is fitted to.

Points with history are the training points. For points without history, the points are divided
into folds; each fold is forecast from the others, fewer of them in later folds, so that greater
distances occur. The forecasts before the validation part are made too: their errors are known when
a validation forecast is issued.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64, Int64

from stonet.calibration.bins import Bins, distance_to_observed
from stonet.calibration.past_forecasts import Errors, Issues, PastForecasts, spacing
from stonet.calibration.scale import Places, day_phases, months
from stonet.calibration.series import independent_windows, issues_within, series_of
from stonet.data.durations import YEAR
from stonet.data.field import Field
from stonet.data.time_spec import TimeSpec
from stonet.models.forecaster import Forecaster, Graphs
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel

MAX_FORECASTS = 100_000  # windows times points: a number, not a time, so that seeds decide all
MIN_WINDOWS, MAX_WINDOWS = 48, 800  # forecast in all
HISTORY_SHARE = 0.6  # of the windows that are forecast at points with history
MIN_TARGETS, MAX_TARGETS = 32, 256  # points whose errors are kept
MAX_ERRORS = 2**21  # of all points with history, which bounds the time
SHARES = (1.0, 1.0, 1.0, 0.5, 0.2)  # of the other points that are given, one for each fold
MIN_NODES = 3  # points given in a fold
OLDEST_WEIGHT = 0.4  # of the oldest window relative to the newest one
OTHER_SEASON_WEIGHT = 0.5  # of a window half a year before the newest one, beside that of its age

Index = Int64[np.ndarray, "_"]  # positions of points
Series = tuple[Field, Index]  # an episode, and issue times in it


@dataclass(frozen=True)
class Sample:
    """Errors of some forecasts at some points, uncorrected.

    Args:
        errors: forecast minus truth; NaN where unknown.
        row: of the same issue time among the forecasts with history.
        target: which point each column is.
        distance: to the nearest point with history; 0: it has one.
        times: of the forecasts, in nanoseconds.
        hour: phase of the day, as `scale.day_phases` counts it.
        weight: 1 for the newest; 0: before the validation part.
    """

    errors: Errors
    row: Int64[np.ndarray, " issue"]
    target: Index
    distance: Float64[np.ndarray, " point"]
    times: Int64[np.ndarray, "issue lead"]
    hour: Int64[np.ndarray, "issue lead point"]
    weight: Float64[np.ndarray, " issue"]

    def rows(self, chosen: Int64[np.ndarray, " chosen"]) -> Sample:
        """Some of the forecasts.

        Args:
            chosen: their positions.
        """
        names = ("errors", "row", "times", "hour", "weight")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    def places(self, bins: Bins, time_spec: TimeSpec) -> Places:
        """Bin, hour and month of each error.

        Args:
            bins: of distance.
            time_spec: of the model.
        """
        month = months(time_spec, self.times)[:, :, None]
        return Places(*np.broadcast_arrays(bins.of(self.distance), self.hour, month))

    @staticmethod
    def joined(parts: Sequence[Sample]) -> Sample:
        """The forecasts of several episodes at the same points, one after another.

        Args:
            parts: one for each episode.
        """
        names = ("errors", "row", "times", "hour", "weight")
        return replace(
            parts[0], **{n: np.concatenate([getattr(part, n) for part in parts]) for n in names}
        )


@dataclass(frozen=True)
class Samples:
    """All forecasts of a calibration.

    Args:
        history: at points with history; weight 0 before the validation part.
        earlier: rows of the forecasts before each one; -1: none.
        without: at points without history, one for each fold.
        windows: number of validation windows whose targets do not overlap.
    """

    history: Sample
    earlier: Int64[np.ndarray, "issue memory"]
    without: tuple[Sample, ...]
    windows: int

    @property
    def validation(self) -> Sample:
        """The forecasts of the validation part at points with history."""
        return self.history.rows(np.flatnonzero(self.history.weight))


class Collector:
    """Makes the forecasts of the samples; fewer windows if there are many points.

    Args:
        model: whose forecasts these are.
        trained: gives scaler and times.
        task: the data.
    """

    def __init__(self, model: Forecaster, trained: TrainedModel, task: Task) -> None:
        self.model, self.trained, self.task = model, trained, task
        self.random = np.random.default_rng(0)
        seen = task.dataset.seen
        each = MAX_WINDOWS * HISTORY_SHARE * task.time_spec.horizon * len(trained.channels)
        self.most = int(np.clip(MAX_ERRORS / each, MIN_TARGETS, MAX_TARGETS))
        self.targets = np.sort(self.random.permutation(seen)[: self.most])
        self.per_day = max(1, round(spacing(task.time_spec) / task.time_spec.step))
        self.windows = int(np.clip(MAX_FORECASTS // len(seen), MIN_WINDOWS, MAX_WINDOWS))
        self.usual = 0.0  # median distance of a hidden point to the others
        self.rows: dict[int, tuple[Issues, int]] = {}  # of an episode: its issues, first row

    def collect(self) -> Samples | None:
        """The samples; None if no window lies in the validation part."""
        series = [
            (whole, issues_within(self.task, field) + offset)
            for whole, offset, field in series_of(self.task, "validation")
        ]
        series = [(whole, issues) for whole, issues in series if len(issues)]
        if not series:
            return None
        past = self._past(series[0][0], None)
        past.errors(series[0][1][:1])  # builds the graphs
        graphs = past.graphs
        chosen = self._chosen(series, int(HISTORY_SHARE * self.windows))
        history, earlier = self._with_history(chosen, graphs)
        without = tuple(self._folds(chosen)) if self.model.inductive else ()
        apart = sum(independent_windows(self.task, e.times[issues]) for e, issues in chosen)
        return Samples(history, earlier, without, apart)

    def monthly_errors(
        self, count: int
    ) -> tuple[Float64[np.ndarray, "window channel"], Int64[np.ndarray, " window"]]:
        """Mean absolute errors of windows of the training part, and the month of each.

        Args:
            count: windows in all, evenly spaced over the episodes.
        """
        series = [
            (whole, issues_within(self.task, field) + offset)
            for whole, offset, field in series_of(self.task, "train")
        ]
        total = sum(len(issues) for _, issues in series)
        errors, month, graphs = [], [], None
        for whole, issues in series:
            share = max(1, count * len(issues) // max(total, 1))
            chosen = np.unique(np.linspace(0, len(issues) - 1, share).astype(np.int64))
            past = self._past(whole, graphs)
            graphs = past.graphs
            found = np.abs(past.errors(issues[chosen]).astype(np.float64))
            known = np.isfinite(found)
            size = known.sum((1, 2))
            mean = np.where(known, found, 0).sum((1, 2)) / np.maximum(size, 1)
            errors.append(np.where(size > 0, mean, np.nan))
            month.append(months(self.task.time_spec, whole.times[issues[chosen]]))
        return np.concatenate(errors), np.concatenate(month)

    def _past(self, whole: Field, graphs: Graphs | None) -> PastForecasts:
        """The forecasts at points with history."""
        seen = self.task.dataset.seen
        return PastForecasts(self.model, self.trained, whole, seen, self.targets, graphs)

    def _chosen(self, series: list[Series], limit: int) -> list[Series]:
        """As many issue times as the limit allows, evenly spread over the hours of the day.

        Their interval divides a day, so that earlier forecasts are shared.
        """
        intervals = [s for s in range(1, self.per_day + 1) if self.per_day % s == 0]
        for interval in intervals:
            chosen = [(whole, issues[::-1][::interval][::-1]) for whole, issues in series]
            if sum(len(issues) for _, issues in chosen) + self._needed(chosen) <= limit:
                return chosen
        each = max(1, limit // 2 // len(chosen))
        newest = [(whole, issues[-each:]) for whole, issues in chosen]
        return newest[:: -(-len(newest) // max(limit, 1))]

    def _needed(self, chosen: list[Series]) -> int:
        """The number of earlier forecasts that are not among the chosen ones."""
        count = 0
        for whole, issues in chosen:
            earlier = np.unique(self._past(whole, None).earlier(issues))
            count += len(np.setdiff1d(earlier[earlier >= 0], issues))
        return count

    def _with_history(
        self, series: list[Series], graphs: Graphs
    ) -> tuple[Sample, Int64[np.ndarray, "issue memory"]]:
        """The forecasts at points with history, those before them too, and which these are."""
        parts: list[Sample] = []
        rows_before = []
        for whole, issues in series:
            past = self._past(whole, graphs)
            earlier = past.earlier(issues)
            everything = np.union1d(issues, earlier[earlier >= 0])
            start = sum(len(part.errors) for part in parts)
            self.rows[id(whole)] = everything, start
            weight = np.zeros(len(everything))
            weight[np.searchsorted(everything, issues)] = self._weights(whole, issues)
            parts.append(self._sample(past, everything, weight))
            earlier = past.earlier(everything)
            row = np.searchsorted(everything, earlier).clip(max=len(everything) - 1)
            found = (earlier >= 0) & (everything[row] == earlier)
            rows_before.append(np.where(found, row + start, -1))
        return Sample.joined(parts), np.concatenate(rows_before)

    def _folds(self, series: list[Series]) -> Iterator[Sample]:
        """The forecasts at points without history, one sample for each fold."""
        seen, total = self.task.dataset.seen, sum(len(issues) for _, issues in series)
        limit = max(1, int((1 - HISTORY_SHARE) * self.windows) // len(SHARES))
        every = max(1, -(-total // limit))
        order = self.random.permutation(seen)
        for number, share in enumerate(SHARES):
            others = self.random.permutation(np.delete(order, np.s_[number :: len(SHARES)]))
            nodes = np.sort(others[: max(MIN_NODES, int(share * len(others)))])
            hidden = self.random.permutation(np.setdiff1d(seen, nodes))[: self.most]
            if len(nodes) < MIN_NODES or not len(hidden):
                continue
            hidden = self._farther(nodes, np.sort(hidden), share)
            parts, graphs = [], None
            for whole, issues in series if len(hidden) else ():
                arguments = self.model, self.trained, whole, nodes, hidden, graphs
                past = PastForecasts(*arguments)
                graphs = past.graphs
                chosen = issues[number % min(every, len(issues)) :: every]
                parts.append(self._sample(past, chosen, self._weights(whole, chosen)))
            if parts:
                yield Sample.joined(parts)

    def _farther(self, nodes: Index, hidden: Index, share: float) -> Index:
        """Of a thinned network only the points that are farther away than is usual in the whole.

        Errors at the same distance are larger in a thinner network.
        """
        points = self.task.dataset.points
        given = np.ones((1, len(nodes)), dtype=bool)
        distance = distance_to_observed(points.take(nodes), points.take(hidden), given)[0]
        if share == 1.0:
            self.usual = max(self.usual, float(np.median(distance)))
            return hidden
        return hidden[distance > self.usual]

    def _sample(
        self, past: PastForecasts, issues: Issues, weight: Float64[np.ndarray, " issue"]
    ) -> Sample:
        """The forecasts from these issue times."""
        everything, start = self.rows[id(past.field)]
        leads = self.task.time_spec.step * np.arange(1, self.task.time_spec.horizon + 1)
        times = past.field.times[issues][:, None] + leads
        nodes = past.field.points.take(past.nodes)
        everywhere = np.ones((1, len(nodes)), dtype=bool)
        return Sample(
            errors=past.errors(issues),
            row=np.searchsorted(everything, issues) + start,
            target=past.targets,
            distance=distance_to_observed(nodes, past.points, everywhere)[0],
            times=times,
            hour=day_phases(self.task.time_spec, times, past.points),
            weight=weight,
        )

    def _weights(self, whole: Field, issues: Issues) -> Float64[np.ndarray, " issue"]:
        """Weights of consecutive issue times of an episode."""
        times, calendar = whole.times[issues], self.task.time_spec.calendar
        return recent_and_seasonal(times) if calendar else recency(len(times))


def recency(count: int) -> Float64[np.ndarray, " issue"]:
    """Weights of consecutive issue times: recent ones count more.

    Args:
        count: of the issue times.
    """
    return np.linspace(OLDEST_WEIGHT, 1, count)


def recent_and_seasonal(
    times: Int64[np.ndarray, " issue"],
) -> Float64[np.ndarray, " issue"]:
    """As `recency`; issue times in the season of the newest, which forecasts follow, count more.

    Args:
        times: of issue, in nanoseconds, increasing.
    """
    newest = times[-1] if len(times) else 0
    opposite = 0.5 - 0.5 * np.cos(2 * np.pi * (times - newest) / YEAR)  # 0 to 1
    return recency(len(times)) * (1 - (1 - OTHER_SEASON_WEIGHT) * opposite)
