"""TimeSpec: from nanoseconds to what the networks see, in int64 and float64 before casting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64

from stonet.config import Config
from stonet.data.durations import DAY, SECOND, YEAR, in_steps
from stonet.data.field import Dataset

HORIZON = 12  # steps, unless asked otherwise
MAX_DAILY_PAST = 48  # steps; a finer daily cycle is too long to be seen whole


@dataclass(frozen=True)
class TimeSpec:
    """A data set's rhythm: the usual step, how many of them go in and come out."""

    step: int  # nanoseconds
    past: int  # frames in
    horizon: int  # frames out
    calendar: bool
    yearly: bool = True  # whether training has seen a whole year; else its phase would tell lies

    sunny: bool = False  # whether the sun's place tells something: hours, and points on the Earth

    @property
    def around(self) -> Int64[np.ndarray, " knot"]:
        """Whole steps before and after the issue time at which the sun is looked at."""
        return np.arange(-self.horizon, self.horizon + 1) * self.step

    @property
    def periods(self) -> tuple[int, ...]:
        """The cycles whose phases are the features of a time: the year, the day."""
        if not self.calendar:
            return ()
        return ((YEAR,) if self.yearly else ()) + ((DAY,) if self.step < DAY else ())

    @property
    def features(self) -> int:
        """How many calendar features a time has."""
        return len(self.periods)

    @property
    def daily(self) -> bool:
        """Whether hours of a day can be told apart."""
        return self.calendar and self.step <= DAY // 4

    def calendar_features(
        self, times: Int64[np.ndarray, "..."]
    ) -> Float32[np.ndarray, "... feature"]:
        """Fractions of the year and of the day; nothing for a field without a calendar."""
        phases = [(times % period) / period for period in self.periods]
        stacked = np.stack(phases, axis=-1) if phases else np.zeros((*times.shape, 0))
        return stacked.astype(np.float32)

    def hour(self, times: Int64[np.ndarray, "..."]) -> Int64[np.ndarray, "..."]:
        """Hour of the day, 0 to 23; 0 throughout where there are no hours."""
        return (times % DAY) // (3600 * SECOND) if self.daily else np.zeros_like(times)

    def steps(self, nanoseconds: Int64[np.ndarray, "..."]) -> Float32[np.ndarray, "..."]:
        """A time difference in usual steps."""
        return (nanoseconds / self.step).astype(np.float32)


def resolve_time_spec(dataset: Dataset, config: Config) -> TimeSpec:
    """Lengths in steps of the data; without a wish, the past is one day where there are days."""
    first = dataset.episodes[0]
    horizon = in_steps(config.data.horizon or dataset.horizon or HORIZON, first.step)
    past = config.data.past or dataset.past
    if past is None:
        a_day = round(DAY / first.step)
        past = a_day if first.calendar and 12 < a_day <= MAX_DAILY_PAST else 12
    return TimeSpec(first.step, in_steps(past, first.step), horizon, first.calendar)
