"""Scale: the expected absolute error, by which errors are divided before they are compared.

    scale = base(bin, lead) * phase(history, phase of the day) * month(month)

for each channel. Hours are those of the sun at the target. The months come from the training part,
since validation seldom covers the year: errors are smaller there, but their seasons are alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from stonet.data.durations import DAY
from stonet.data.geometry import Points
from stonet.data.solar_position import sun_direction
from stonet.data.time_spec import TimeSpec

PHASES, MONTHS = 24, 12
PHASE_PRIOR, MONTH_PRIOR = 5.0, 10.0  # forecasts with mean error that a profile is shrunk by
CELL_PRIOR = 5.0  # points (with history: windows) that a lead's own error is shrunk by
MIN_MONTH = 0.1  # least factor of a month
CERTAIN = 1e-6  # share of the mean error below which an hour has none, such as power at night


@dataclass(frozen=True)
class Places:
    """Bin, hour and month of some errors: arrays (window, lead, point), or broadcast to these.

    Args:
        bin: by history and distance.
        hour: phase of the day, from 0.
        month: from 0.
    """

    bin: Int64[np.ndarray, "..."]
    hour: Int64[np.ndarray, "..."]
    month: Int64[np.ndarray, "..."]


@dataclass(frozen=True)
class Scale:
    """Expected absolute errors in the data's units.

    Args:
        base: by bin, lead and channel.
        hour: factor of each phase of the day, for points with and without history.
        month: factor of each month.
    """

    base: Float64[np.ndarray, "bin lead channel"]
    hour: Float64[np.ndarray, "history 24 channel"]
    month: Float64[np.ndarray, "12 channel"]

    @staticmethod
    def fit(
        error: Float64[np.ndarray, "sample channel"],
        weight: Float64[np.ndarray, " sample"],
        count: Float64[np.ndarray, " bin"],
        leads: int,
        lead: Int64[np.ndarray, " sample"],
        places: Places,
        month: Float64[np.ndarray, "12 channel"],
    ) -> Scale:
        """Means in each cell, shrunk towards the product of bin and lead.

        Args:
            error: absolute errors; NaN where unknown.
            weight: of each.
            count: size of the sample in each bin: points, or windows with history.
            leads: number of leads.
            lead: of each error, from 0.
            places: of each error.
            month: factors of the months.
        """
        bins = len(count)
        channels, hours = error.shape[-1], np.ones((2, PHASES, error.shape[-1]))
        base = np.ones((bins, leads, channels))
        history = (places.bin > 0).astype(np.int64)
        relative = error / month[places.month]
        for _ in range(2):
            reduced = relative / np.maximum(hours[history, places.hour], CERTAIN)
            reduced[hours[history, places.hour] <= CERTAIN] = 0.0
            base = _shrunk_cells(reduced, weight, count, leads, lead, places.bin)
            ratio = relative / np.maximum(base[places.bin, lead], np.finfo(np.float64).tiny)
            cells = history * PHASES + places.hour
            mean, size = _means(ratio, weight, cells, 2 * PHASES)
            hours = _shrunk(mean, size, PHASE_PRIOR).reshape(2, PHASES, channels)
        return Scale(base, hours, month)

    def at(
        self, places: Places, lead: Int64[np.ndarray, "..."]
    ) -> Float64[np.ndarray, "... channel"]:
        """The scale in whole bins and at whole leads, numbered from 0.

        Args:
            places: of the errors.
            lead: of the errors, from 0.
        """
        history = (places.bin > 0).astype(np.int64)
        return (
            self.base[places.bin, lead] * self.hour[history, places.hour] * self.month[places.month]
        )

    def between(
        self,
        weights: Float64[np.ndarray, "issue query bin"],
        steps: Float64[np.ndarray, " lead"],
        hour: Int64[np.ndarray, "issue lead query"],
        month: Int64[np.ndarray, "issue lead"],
    ) -> Float64[np.ndarray, "issue lead query channel"]:
        """The scale between bins and leads; leads count in steps from 1.

        Args:
            weights: of the bins.
            steps: leads in steps.
            hour: phase of the day, from 0.
            month: from 0.
        """
        trained = np.arange(1, self.base.shape[1] + 1)
        place = np.interp(steps, trained, trained - 1)
        lower = np.floor(place).astype(np.int64)
        upper, share = np.minimum(lower + 1, len(trained) - 1), (place - lower)[:, None]
        base = self.base[:, lower] * (1 - share) + self.base[:, upper] * share
        history = (weights[..., 0] != 1).astype(np.int64)[:, None]
        result = np.einsum("iqb,blc->ilqc", weights, base)
        return result * self.hour[history, hour] * self.month[month][:, :, None]


def day_phases(
    time_spec: TimeSpec, times: Int64[np.ndarray, "issue lead"], points: Points
) -> Int64[np.ndarray, "issue lead point"]:
    """The phase of the day, 0 to 23; 0 throughout where there are no hours.

    On a sphere it is one of 12 equal steps of the sine of the sun's elevation, before noon or
    after; elsewhere the hour.

    Args:
        time_spec: of the model.
        times: of the forecasts, in nanoseconds.
        points: of the forecasts.
    """
    if not time_spec.daily:
        return np.zeros((*times.shape, len(points)), dtype=np.int64)
    day = ((times % DAY) / DAY)[..., None]
    if points.kind != "sphere":
        return np.broadcast_to((PHASES * day).astype(np.int64), (*times.shape, len(points)))
    sine = sun_direction(times).astype(np.float64) @ points.embedded.T
    step = np.floor((sine + 1) / 2 * (PHASES // 2)).astype(np.int64).clip(0, PHASES // 2 - 1)
    afternoon = ((day + points.coordinates[:, 1] / 360) % 1.0) >= 0.5
    return step + PHASES // 2 * afternoon


def months(
    time_spec: TimeSpec, times: Int64[np.ndarray, "issue lead"]
) -> Int64[np.ndarray, "issue lead"]:
    """The month, 0 to 11; 0 throughout without a calendar.

    Args:
        time_spec: of the model.
        times: of the forecasts, in nanoseconds.
    """
    if not time_spec.calendar:
        return np.zeros(times.shape, dtype=np.int64)
    return times.astype("datetime64[ns]").astype("datetime64[M]").astype(np.int64) % MONTHS


def month_factors(
    error: Float64[np.ndarray, "window channel"], month: Int64[np.ndarray, " window"]
) -> Float64[np.ndarray, "12 channel"]:
    """The mean error of each month relative to that of all, shrunk towards 1.

    Args:
        error: mean absolute error of each window; NaN where unknown.
        month: of each window.
    """
    weight = np.ones(len(month))
    mean, size = _means(error, weight, month, MONTHS)
    overall = (mean * size).sum(0) / np.maximum(size.sum(0), 1)
    ratio = mean / np.where(overall > 0, overall, 1)
    return np.where(size > 0, np.maximum(_shrunk(ratio, size, MONTH_PRIOR), MIN_MONTH), 1.0)


def _shrunk(
    ratio: Float64[np.ndarray, "cell channel"],
    size: Float64[np.ndarray, "cell channel"],
    prior: float,
) -> Float64[np.ndarray, "cell channel"]:
    """Ratios shrunk towards 1 on a logarithmic scale; 0 where they are, and the sample is large."""
    shrunk = np.exp(np.log(np.maximum(ratio, CERTAIN)) * size / (size + prior))
    return np.where((ratio <= CERTAIN) & (size > prior), 0.0, shrunk)


def _shrunk_cells(
    error: Float64[np.ndarray, "sample channel"],
    weight: Float64[np.ndarray, " sample"],
    count: Float64[np.ndarray, " bin"],
    leads: int,
    lead: Int64[np.ndarray, " sample"],
    bin_of: Int64[np.ndarray, " sample"],
) -> Float64[np.ndarray, "bin lead channel"]:
    """Mean errors by bin and lead, shrunk towards mean of the bin * profile of the lead."""
    bins, channels = len(count), error.shape[-1]
    cells, size = _means(error, weight, bin_of * leads + lead, bins * leads)
    cells, size = (part.reshape(bins, leads, channels) for part in (cells, size))
    by_bin, _ = _means(error, weight, bin_of, bins)
    by_lead, _ = _means(error, weight, lead, leads)
    overall = np.nanmean(np.where(size > 0, cells, np.nan), (0, 1)) if size.any() else np.ones(1)
    parent = by_bin[:, None] * by_lead / np.where(overall > 0, overall, 1)
    share = count[:, None, None] / (count[:, None, None] + CELL_PRIOR)
    return np.where(size > 0, share * cells + (1 - share) * parent, parent)


def _means(
    values: Float64[np.ndarray, "sample channel"],
    weight: Float64[np.ndarray, " sample"],
    cell: Int64[np.ndarray, " sample"],
    cells: int,
) -> tuple[Float64[np.ndarray, "cell channel"], Float64[np.ndarray, "cell channel"]]:
    """Weighted means of the values in each cell (0 in an empty one), and sums of weights."""
    sums, sizes = (np.zeros((cells, values.shape[-1])) for _ in range(2))
    for channel in range(values.shape[-1]):
        known = np.isfinite(values[:, channel])
        column, place = values[known, channel], cell[known]
        sizes[:, channel] = np.bincount(place, weight[known], cells)
        sums[:, channel] = np.bincount(place, weight[known] * column, cells)
    return sums / np.where(sizes > 0, sizes, 1), sizes
