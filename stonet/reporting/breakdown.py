"""Breakdown: the mean absolute error of a model by lead, hour, month, station and window."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64

from stonet.calibration.scale import MONTHS
from stonet.data.durations import DAY
from stonet.data.windows import Windows
from stonet.evaluation.scoring import Group, Index, ScoredBatch

HOURS = 24
By = Literal["lead", "hour", "month", "station", "window"]


@dataclass
class Sums:
    """Sums of absolute errors, and their number, by group and channel.

    Args:
        total: sums of errors in the data's units.
        count: numbers of observed values.
    """

    total: Float64[np.ndarray, "group channel"]
    count: Float64[np.ndarray, "group channel"]

    @staticmethod
    def zero(groups: int, channels: int) -> Sums:
        """No error yet.

        Args:
            groups: their number.
            channels: their number.
        """
        return Sums(np.zeros((groups, channels)), np.zeros((groups, channels)))

    @property
    def mean(self) -> Float64[np.ndarray, "group channel"]:
        """NaN where nothing was observed."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.total / self.count


@dataclass
class Breakdown:
    """Errors of one model at one group of points.

    Hours and months are those of the forecast times, in UTC.

    Args:
        leads: number of leads.
        points: number of points.
        windows: number of windows.
        channels: number of channels.
        calendar: whether times are dates, with hours and months.
    """

    leads: int
    points: int
    windows: int
    channels: int
    calendar: bool
    sums: dict[By, Sums] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        sizes: dict[By, int] = {"lead": self.leads, "station": self.points, "window": self.windows}
        if self.calendar:
            sizes |= {"hour": HOURS, "month": MONTHS}
        self.sums = {by: Sums.zero(size, self.channels) for by, size in sizes.items()}

    def mean(self, by: By) -> Float64[np.ndarray, "group channel"]:
        """The mean absolute error of each group, NaN where nothing was observed.

        Args:
            by: what the errors are grouped by.
        """
        return self.sums[by].mean

    def add(self, windows: Windows, batch: ScoredBatch) -> None:
        """Add the errors of a batch.

        Args:
            windows: of the inputs.
            batch: forecasts and truth.
        """
        observed = batch.observed.numpy()
        error = np.where(observed, (batch.forecast - batch.truth.double()).abs().cpu().numpy(), 0.0)
        self._add("lead", error.sum((0, 2)), observed.sum((0, 2)))
        self._add("station", error.sum((0, 1)), observed.sum((0, 1)))
        self._add("window", error.sum((1, 2)), observed.sum((1, 2)), batch.chosen)
        if not self.calendar:
            return
        times = target_times(windows, batch.chosen).ravel()
        by_time = (part.sum(2).reshape(-1, self.channels) for part in (error, observed))
        totals, counts = by_time
        hour = times % DAY // (DAY // HOURS)
        month = times.astype("datetime64[ns]").astype("datetime64[M]").astype(np.int64) % MONTHS
        self._add("hour", totals, counts, hour)
        self._add("month", totals, counts, month)

    def _add(
        self,
        by: By,
        total: np.ndarray,
        count: np.ndarray,
        groups: Int64[np.ndarray, " row"] | None = None,
    ) -> None:
        """Add rows to their groups; without groups, each row to its own."""
        rows = np.arange(len(total)) if groups is None else groups
        np.add.at(self.sums[by].total, rows, total)
        np.add.at(self.sums[by].count, rows, count)


def target_times(
    windows: Windows, chosen: Int64[np.ndarray, " batch"]
) -> Int64[np.ndarray, "batch future"]:
    """The times that some windows forecast, in nanoseconds.

    Args:
        windows: of the inputs.
        chosen: positions of some of them.
    """
    spec = windows.time_spec
    first = windows.starts[chosen][:, None] + spec.past
    return np.asarray(windows.times[first + np.arange(spec.horizon)])


class Breakdowns:
    """The breakdown of every model and group, filled by `stonet.evaluation.scoring.evaluate`.

    Args:
        calendar: whether times are dates.
    """

    def __init__(self, calendar: bool) -> None:
        self.calendar = calendar
        self.found: dict[tuple[str, Group], Breakdown] = {}

    def __call__(
        self, model: str, group: Group, queries: Index, windows: Windows, batch: ScoredBatch
    ) -> None:
        """Add a batch; an `Observer`.

        Args:
            model: whose forecasts these are.
            group: of the points.
            queries: positions of the points.
            windows: of the inputs.
            batch: forecasts and truth.
        """
        if (model, group) not in self.found:
            _, leads, points, channels = batch.forecast.shape
            made = Breakdown(leads, points, len(windows), channels, self.calendar)
            self.found[model, group] = made
        self.found[model, group].add(windows, batch)
