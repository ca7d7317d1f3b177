"""Cases: forecasts of the scored part beside what was observed, for maps and series."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64

from stonet.data.windows import Windows
from stonet.evaluation.probabilistic import QUANTILES
from stonet.evaluation.scoring import Group, Index, ScoredBatch
from stonet.reporting.breakdown import target_times

MAX_VALUES = 2**22  # forecasts that are kept, of all windows
MIN_WINDOWS = 3  # that are kept, however many points there are
GROUPS: tuple[Group, ...] = ("seen", "unseen-no-history")
LOWER, UPPER = QUANTILES.index(0.05), QUANTILES.index(0.95)  # ends of the 90 % interval

Values = Float32[np.ndarray, "window future point channel"]


@dataclass(frozen=True)
class Cases:
    """Forecasts of some windows at all points: seen ones, then unseen ones without history.

    Args:
        windows: positions among the windows of the part.
        issue: last time with observations, of each window.
        times: of the forecasts.
        points: positions in the data set.
        seen: number of seen points, which come first.
        forecast: in the data's units.
        truth: NaN where nothing was observed.
        low: lower end of the 90 % interval, NaN where there is none.
        high: upper end.
    """

    windows: Int64[np.ndarray, " window"]
    issue: Int64[np.ndarray, " window"]
    times: Int64[np.ndarray, "window future"]
    points: Int64[np.ndarray, " point"]
    seen: int
    forecast: Values
    truth: Values
    low: Values
    high: Values

    def errors(self, channel: int) -> Float32[np.ndarray, " window"]:
        """The mean absolute error of each window; NaN where nothing was observed.

        Args:
            channel: its position.
        """
        error = np.abs(self.forecast - self.truth)[..., channel]
        count = np.isfinite(error).sum((1, 2))
        return (np.nansum(error, axis=(1, 2)) / np.where(count, count, np.nan)).astype(np.float32)

    def ranked(self, channel: int) -> tuple[int, int, int]:
        """Rows of the best, the median and the worst window.

        Windows with less than half of the usual number of observations do not count.

        Args:
            channel: its position.
        """
        observed = np.isfinite(self.truth[..., channel]).sum((1, 2))
        enough = observed >= 0.5 * np.median(observed)
        error = np.where(enough & (observed > 0), self.errors(channel), np.nan)
        order = np.argsort(error, kind="stable")
        known = max(1, int(np.isfinite(error).sum()))
        return int(order[0]), int(order[known // 2]), int(order[known - 1])


class CaseKeeper:
    """Keeps the forecasts of one model while it is scored; an `Observer`.

    Args:
        model: its name.
        leads: number of leads.
        points: number of all points.
        channels: number of channels.
    """

    def __init__(self, model: str, leads: int, points: int, channels: int) -> None:
        self.model = model
        self.limit = max(MIN_WINDOWS, MAX_VALUES // (leads * points * channels))
        self._kept: dict[Group, list[tuple[np.ndarray, ...]]] = {group: [] for group in GROUPS}
        self._points: dict[Group, Index] = {}

    def __call__(
        self, model: str, group: Group, queries: Index, windows: Windows, batch: ScoredBatch
    ) -> None:
        """Keep a batch, or evenly spaced windows of it where there are many.

        Args:
            model: whose forecasts these are.
            group: of the points.
            queries: positions of the points.
            windows: of the inputs.
            batch: forecasts and truth.
        """
        if model != self.model or group not in GROUPS:
            return
        every = -(-len(windows) // self.limit)
        rows = np.flatnonzero(batch.chosen % every == 0)
        if not len(rows):
            return
        chosen = batch.chosen[rows]
        truth = np.where(batch.observed.numpy(), batch.truth.numpy(), np.nan)[rows]
        forecast = batch.forecast.cpu().numpy()[rows]
        if batch.quantiles is None:
            low = high = np.full(forecast.shape, np.nan)
        else:
            low, high = batch.quantiles[LOWER][rows], batch.quantiles[UPPER][rows]
        issue = windows.times[windows.starts[chosen] + windows.time_spec.past - 1]
        values = (part.astype(np.float32) for part in (forecast, truth, low, high))
        self._points[group] = queries
        self._kept[group].append((chosen, issue, target_times(windows, chosen), *values))

    def cases(self) -> Cases:
        """All that was kept; windows in the order of time."""
        groups = [group for group in GROUPS if self._kept[group]]
        parts = [
            [np.concatenate(columns) for columns in zip(*self._kept[group], strict=True)]
            for group in groups
        ]
        first = parts[0]
        forecast, truth, low, high = (
            np.concatenate([part[column] for part in parts], axis=2) for column in range(3, 7)
        )
        return Cases(
            windows=first[0],
            issue=first[1],
            times=first[2],
            points=np.concatenate([self._points[group] for group in groups]),
            seen=len(self._points["seen"]),
            forecast=forecast,
            truth=truth,
            low=low,
            high=high,
        )
