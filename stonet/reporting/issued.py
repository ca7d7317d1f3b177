"""Issued: a trained model at one issue time of some data; what its maps and series are made from.

The model is given the history of the seen stations up to the issue time. What was observed later,
and at stations that were held out, is kept beside it for comparison.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stonet.calibration.conformal import Calibration
from stonet.data.dates import Time, Times, parse_time
from stonet.data.display import short_time
from stonet.data.durations import duration_label
from stonet.data.field import Dataset, Field
from stonet.data.geometry import Points
from stonet.data.quantile_field import QuantileField
from stonet.errors import UsageError
from stonet.graph.neighbours import own_nodes
from stonet.inference.calibrated import calibrated_forecast, quantile_forecast, recent_frames
from stonet.inference.places import region_grid
from stonet.training.trained_model import TrainedModel

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MAP_CELLS = 10_500  # of a map whose step is not given, at most
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)  # of a grid, times a power of ten


@dataclass(frozen=True)
class Issued:
    """A model and the observations that it forecasts from.

    Args:
        trained: the model.
        calibration: of the model (None: no intervals, no correction by recent errors).
        past: of the seen stations, up to the issue time.
        whole: all stations and times, to compare with.
        feedback: whether forecasts are corrected by recent errors.
    """

    trained: TrainedModel
    calibration: Calibration | None
    past: Field
    whole: Field
    feedback: bool = True

    @staticmethod
    def of(
        trained: TrainedModel,
        calibration: Calibration | None,
        dataset: Dataset,
        issue: Time | None = None,
        feedback: bool = True,
    ) -> Issued:
        """The last episode of some data, up to an issue time.

        Args:
            trained: the model.
            calibration: of the model.
            dataset: with the stations that are held out.
            issue: last time with observations (None: that of the data).
            feedback: whether forecasts are corrected by recent errors.

        Raises:
            DataError: the data do not fit the model.
            UsageError: the issue time lies outside of the data.
        """
        whole = dataset.episodes[-1]
        trained.check_compatible(whole)
        stop = len(whole.times)
        if issue is not None:
            wanted = parse_time(issue, whole.calendar)
            stop = int(np.searchsorted(whole.times, wanted, side="right"))
            if not stop > 0 or wanted > int(whole.times[-1]):
                first, last = (short_time(int(t), whole.calendar) for t in whole.times[[0, -1]])
                shown = short_time(wanted, whole.calendar)
                raise UsageError(
                    f"A forecast issued at {shown} was requested; the data reach from {first} to "
                    f"{last}. Give a time within them."
                )
        past = recent_frames(trained, whole.between(0, stop), calibration)
        return Issued(trained, calibration, past.take(dataset.seen), whole, feedback)

    @property
    def time(self) -> int:
        """The issue time in nanoseconds."""
        return int(self.past.times[-1])

    @property
    def horizon(self) -> int:
        """The trained horizon in nanoseconds."""
        return self.trained.time_spec.horizon * self.trained.time_spec.step

    @property
    def label(self) -> str:
        """'issued 2024-06-01 06:00 UTC'."""
        return f"issued {short_time(self.time, self.past.calendar)}{' UTC' * self.past.calendar}"

    def forecast(self, at: Points | None = None, times: Times | None = None) -> Field:
        """The forecast.

        Args:
            at: points (None: the seen stations).
            times: leads or dates (None: the trained leads).
        """
        arguments = self.trained, self.calibration, self.past, at, times
        return calibrated_forecast(*arguments, feedback=self.feedback)

    def intervals(self, at: Points, times: Times | None = None) -> QuantileField:
        """The forecast with its 50 % and 90 % intervals; without them if there is no calibration.

        Args:
            at: points.
            times: leads or dates (None: the trained leads).
        """
        if self.calibration is None:
            made = self.forecast(at, times)
            return QuantileField(made, (), np.zeros((0, *made.values.shape), np.float32))
        arguments = self.trained, self.calibration, self.past, QUANTILES, at, times
        return quantile_forecast(*arguments, feedback=self.feedback)

    def observed(self, frame: int) -> Field:
        """What was observed at all stations at a time of the data.

        Args:
            frame: position in `whole.times`.
        """
        return self.whole.between(frame, frame + 1)

    def frame(self, time: int) -> int | None:
        """The position in `whole.times` of a time; None: the data do not have it.

        Args:
            time: in nanoseconds.
        """
        at = int(np.searchsorted(self.whole.times, time))
        found = at < len(self.whole.times) and int(self.whole.times[at]) == time
        return at if found else None

    def series_at(self, place: Points) -> tuple[Field | None, Field | None]:
        """The observations at a place before and after the issue time; None where there are none.

        Args:
            place: a single point.
        """
        node = int(own_nodes(place, self.whole.points)[0])
        if node == len(self.whole.points):
            return None, None
        own = self.whole.take(np.array([node]))
        stop = int(np.searchsorted(own.times, self.time, side="right"))
        past = own.between(max(0, stop - self.trained.time_spec.past), stop)
        end = int(np.searchsorted(own.times, self.time + self.horizon, side="right"))
        return past, own.between(stop, end) if end > stop else None

    def leads(self, requested: Sequence[Time] | None) -> list[int]:
        """Requested times in nanoseconds; by default the end of the trained horizon.

        Args:
            requested: leads such as "+6h", or dates.
        """
        if not requested:
            return [self.time + self.horizon]
        return [parse_time(time, self.past.calendar, self.time) for time in requested]

    def lead_label(self, time: int) -> str:
        """'+6 h'.

        Args:
            time: of the forecast, in nanoseconds.
        """
        return f"+{duration_label(time - self.time)}"


def map_grid(points: Points, step: float | None = None, cells: int = MAP_CELLS) -> Points:
    """A grid over the region of some points, for a map.

    Args:
        points: stations.
        step: in degrees or in the unit of the plane (None: as fine as `cells` allows).
        cells: at most, of a grid whose step is not given.
    """
    if step is not None:
        return region_grid(step, points)
    low, high = points.coordinates.min(0), points.coordinates.max(0)
    extent = float((high - low).max()) or 1.0
    power = 10.0 ** (math.floor(math.log10(extent)) - 3)
    candidates = (power * 10**decade * step for decade in range(4) for step in STEPS)
    grids = (region_grid(step, points) for step in candidates if extent / step < 4 * cells)
    return next(grid for grid in grids if len(grid) <= cells)
