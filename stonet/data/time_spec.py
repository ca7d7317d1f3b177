"""TimeSpec: step, past and horizon of a task, and the calendar features of its times.

Times are int64 nanoseconds; differences become float32 only after the subtraction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64

from stonet.config import Config
from stonet.data.durations import DAY, SECOND, YEAR, in_steps
from stonet.data.field import Dataset

HORIZON = 12  # steps, the default
MAX_DAILY_PAST = 48  # steps; the default past is a day if a day has at most so many


@dataclass(frozen=True)
class TimeSpec:
    """The step of a data set, and the lengths of inputs and forecast in steps.

    Args:
        step: nanoseconds.
        past: input frames.
        horizon: forecast frames.
        calendar: whether times are dates.
        yearly: whether training covers a year, so that its phase is a useful feature.
        sunny: whether the solar position is a feature: dates with hours, on a sphere.
    """

    step: int
    past: int
    horizon: int
    calendar: bool
    yearly: bool = True
    sunny: bool = False

    @property
    def around(self) -> Int64[np.ndarray, " knot"]:
        """Times of the solar positions, relative to the issue time, in nanoseconds."""
        return np.arange(-self.horizon, self.horizon + 1) * self.step

    @property
    def periods(self) -> tuple[int, ...]:
        """Periods whose phases are the features of a time: the year, the day."""
        if not self.calendar:
            return ()
        return ((YEAR,) if self.yearly else ()) + ((DAY,) if self.step < DAY else ())

    @property
    def features(self) -> int:
        """Number of calendar features of a time."""
        return len(self.periods)

    @property
    def daily(self) -> bool:
        """Whether the step resolves the daily cycle."""
        return self.calendar and self.step <= DAY // 4

    def calendar_features(
        self, times: Int64[np.ndarray, "..."]
    ) -> Float32[np.ndarray, "... feature"]:
        """Phases of the year and of the day, 0 to 1; none without a calendar.

        Args:
            times: nanoseconds since 1970 UTC.
        """
        phases = [(times % period) / period for period in self.periods]
        stacked = np.stack(phases, axis=-1) if phases else np.zeros((*times.shape, 0))
        return stacked.astype(np.float32)

    def hour(self, times: Int64[np.ndarray, "..."]) -> Int64[np.ndarray, "..."]:
        """Hour of the day, 0 to 23; 0 if the step does not resolve the day.

        Args:
            times: nanoseconds since 1970 UTC.
        """
        return (times % DAY) // (3600 * SECOND) if self.daily else np.zeros_like(times)

    def steps(self, nanoseconds: Int64[np.ndarray, "..."]) -> Float32[np.ndarray, "..."]:
        """A time difference in steps.

        Args:
            nanoseconds: differences of times.
        """
        return (nanoseconds / self.step).astype(np.float32)


def resolve_time_spec(dataset: Dataset, config: Config) -> TimeSpec:
    """Lengths in steps of the data.

    Args:
        dataset: gives the step, and lengths that the settings leave out.
        config: settings data.past and data.horizon. Without a past, it is a day if the data have
            a daily cycle of 13 to 48 steps, else 12 steps.
    """
    first = dataset.episodes[0]
    horizon = in_steps(config.data.horizon or dataset.horizon or HORIZON, first.step)
    past = config.data.past or dataset.past
    if past is None:
        daily = round(DAY / first.step)
        past = daily if first.calendar and 12 < daily <= MAX_DAILY_PAST else 12
    return TimeSpec(first.step, in_steps(past, first.step), horizon, first.calendar)
