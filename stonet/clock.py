"""Clock: from nanoseconds to what the networks see, in int64 and float64 before casting."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64

from stonet.errors import UsageError

SECOND = 1_000_000_000
DAY = 86_400 * SECOND
YEAR = int(365.2425 * DAY)
UNITS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": SECOND,
    "min": 60 * SECOND,
    "h": 3600 * SECOND,
    "d": DAY,
}


@dataclass(frozen=True)
class Clock:
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


def parse_duration(text: str) -> int:
    """'90min', '1h30min', '12h', '0.005 s' in nanoseconds."""
    pattern = r"\s*(\d+(?:\.\d+)?)\s*(ns|us|ms|s|min|h|d)"
    parts = re.findall(pattern, text)
    if not parts or re.sub(pattern, "", text).strip():
        raise UsageError(
            f"'{text}' is not a duration; write a number and a unit ({', '.join(UNITS)}), "
            "e.g. '12h' or '1h30min'."
        )
    return round(sum(float(number) * UNITS[unit] for number, unit in parts))


def in_steps(length: int | str, step: int) -> int:
    """A length in whole steps of `step` nanoseconds."""
    if isinstance(length, str):
        duration = parse_duration(length)
        length = round(duration / step)
        if length < 1 or abs(length * step - duration) > 0.01 * step:
            raise UsageError(
                f"A duration of {duration / SECOND:g} s is no whole number of the data's steps of "
                f"{step / SECOND:g} s."
            )
    if length < 1:
        raise UsageError(f"A length of {length} steps was asked for; expected at least 1.")
    return length
