"""Durations: nanoseconds, units as users write them, and steps of the data."""

from __future__ import annotations

import re

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


def parse_duration(text: str) -> int:
    """'90min', '1h30min', '12h', '0.005 s' in nanoseconds.

    Args:
        text: numbers, each with a unit of UNITS.

    Returns:
        Nanoseconds.
    """
    pattern = r"\s*(\d+(?:\.\d+)?)\s*(ns|us|ms|s|min|h|d)"
    parts = re.findall(pattern, text)
    if not parts or re.sub(pattern, "", text).strip():
        raise UsageError(
            f"'{text}' is not a duration; write a number and a unit ({', '.join(UNITS)}), "
            "e.g. '12h' or '1h30min'."
        )
    return round(sum(float(number) * UNITS[unit] for number, unit in parts))


def duration_label(nanoseconds: int) -> str:
    """A duration in the largest unit that it reaches: '90 min' is '1.5 h'.

    Args:
        nanoseconds: of either sign.
    """
    sizes = [(unit, size) for unit, size in UNITS.items() if size <= abs(nanoseconds)]
    unit, size = sizes[-1] if sizes else ("s", SECOND)
    return f"{nanoseconds / size:.4g} {unit}"


def in_steps(length: int | str, step: int) -> int:
    """A length in steps.

    Args:
        length: a number of steps, or a duration such as "12h".
        step: of the data, in nanoseconds.

    Raises:
        UsageError: the duration is not a multiple of the step, or less than one step.
    """
    if isinstance(length, str):
        duration = parse_duration(length)
        length = round(duration / step)
        if length < 1 or abs(length * step - duration) > 0.01 * step:
            raise UsageError(
                f"A duration of {duration / SECOND:g} s is no whole number of the data's steps of "
                f"{step / SECOND:g} s."
            )
    if length < 1:
        raise UsageError(f"A length of {length} steps was given; expected at least 1.")
    return length
