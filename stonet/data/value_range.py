"""The range of each channel that no forecast leaves, learned from the training data.

Its ends are the extremes of the values, widened by a margin. An extreme that many values equal,
such as no power at night or saturated air, is a bound and is not widened. The known limits of a
quantity and CF's valid range narrow what was learned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float64, Int64

from stonet.data.field import Field
from stonet.data.physical_limits import Bounds, known_limits, quantity_of

BLOCK = 2**20  # values that are read together
MIN_SHARE_ON_BOUND = 0.005  # of all values that equal an extreme, for it to be a bound
MIN_ON_BOUND = 10  # values that equal an extreme, for it to be a bound
MARGIN = 0.1  # by which the extremes are widened, as a share of the distance between them
MAX_BEYOND = 0.01  # share of the values beyond a known limit; more of them refute it

Points = Int64[np.ndarray, " point"] | None  # positions; None: all
End = tuple[float, str]  # of a range, and what it follows from


class Extreme:
    """The smallest (sign 1) or largest (sign -1) value of each channel and its frequency.

    The second smallest is counted as well: rounded values repeat, but a bound is more frequent.

    Args:
        channels: number of channels.
        sign: 1 for the smallest value, -1 for the largest.
    """

    def __init__(self, channels: int, sign: int) -> None:
        self.sign = sign
        self.levels: list[dict[float, int]] = [{} for _ in range(channels)]

    def update(self, values: np.ndarray, observed: np.ndarray) -> None:
        """Count the extremes of a block.

        Args:
            values: (time, node, channel).
            observed: the mask of the values.
        """
        turned = np.where(observed, self.sign * values, np.inf)
        least = turned.min((0, 1), initial=np.inf)
        after = turned.min((0, 1), initial=np.inf, where=turned > least)
        for level in (least, after):
            times = (turned == level).sum((0, 1)).tolist()
            for known, value, count in zip(self.levels, level.tolist(), times, strict=True):
                if value < np.inf:
                    known[value] = known.get(value, 0) + count
        self.levels = [dict(sorted(known.items())[:2]) for known in self.levels]

    @property
    def values(self) -> Float64[np.ndarray, " channel"]:
        """The extreme of each channel."""
        return np.array([self.sign * next(iter(known)) for known in self.levels])

    def is_bound(
        self, count: Float64[np.ndarray, " channel"], varies: Bool[np.ndarray, " channel"]
    ) -> Bool[np.ndarray, " channel"]:
        """For which channels enough values equal the extreme, so that it is a bound.

        Args:
            count: observed values of each channel.
            varies: whether a channel has more than one value.
        """
        found = []
        for known, every, possible in zip(self.levels, count, varies, strict=True):
            (_, times), (_, others) = [*known.items(), (np.inf, 0)][:2]
            frequent = times >= max(MIN_SHARE_ON_BOUND * every, MIN_ON_BOUND) and times > others
            found.append(bool(possible and frequent))
        return np.array(found)


def learn_range(
    fields: Sequence[Field],
    points: Points,
    extremes: tuple[Extreme, Extreme],
    count: Float64[np.ndarray, " channel"],
    constant: Bool[np.ndarray, " channel"],
    margin: float = MARGIN,
) -> tuple[list[End], list[End]]:
    """The lower and the upper end of every channel's range.

    Args:
        fields: the training data.
        points: positions of the points whose values count.
        extremes: the least and the greatest values.
        count: number of values of each channel.
        constant: channels of one value; their range is that value ± 1.
        margin: by which extremes are widened, as a share of their distance.
    """
    least, largest = (extreme.values for extreme in extremes)
    widening = np.where(constant, 1.0, margin * (largest - least))
    bounds = [extreme.is_bound(count, ~constant) for extreme in extremes]
    learned: tuple[list[End], list[End]] = ([], [])
    for values, sign, bound, ends in zip((least, largest), (-1, 1), bounds, learned, strict=True):
        for value, by, reached in zip(values.tolist(), widening.tolist(), bound, strict=True):
            rule = "reached often" if reached else f"extreme {value:.4g} widened by {by:.3g}"
            ends.append((value if reached else value + sign * by, rule))
    limits = _known_limits(fields, points, least, largest, count)
    lower = [
        max([end, *((value, rule) for (value, _), rule in known if value is not None)], key=_value)
        for end, known in zip(learned[0], limits, strict=True)
    ]
    upper = [
        min([end, *((value, rule) for (_, value), rule in known if value is not None)], key=_value)
        for end, known in zip(learned[1], limits, strict=True)
    ]
    return lower, upper


def _value(end: End) -> float:
    return end[0]


def _known_limits(
    fields: Sequence[Field],
    points: Points,
    least: Float64[np.ndarray, " channel"],
    largest: Float64[np.ndarray, " channel"],
    count: Float64[np.ndarray, " channel"],
) -> list[list[tuple[Bounds, str]]]:
    """For each channel the limits of its quantity and CF's valid range, unless values refute them.

    A few values beyond a limit are errors of a sensor; many refute the limit, such as the range of
    a relative humidity for a channel that only has such a name.
    """
    first, found = fields[0], []
    for c, (channel, unit) in enumerate(first.quantity):
        about = first.channel_attrs.get(channel, {})
        name = str(about.get("standard_name", ""))
        pairs: list[tuple[Bounds, str]] = [
            (
                known_limits(channel, unit, name, largest[c]),
                f"limit of {quantity_of(channel, unit, name)}",
            ),
            ((about.get("valid_min"), about.get("valid_max")), "valid range of the data"),
        ]
        kept = []
        for (low, high), rule in pairs:
            # ends that no value is beyond need no count
            outer = (
                low if low is not None and low > least[c] else None,
                high if high is not None and high < largest[c] else None,
            )
            if _share_beyond(fields, points, c, *outer, count[c]) <= MAX_BEYOND:
                kept.append(((low, high), rule))
        found.append(kept)
    return found


def _share_beyond(
    fields: Sequence[Field],
    points: Points,
    channel: int,
    low: float | None,
    high: float | None,
    count: float,
) -> float:
    """The share of a channel's values outside of limits."""
    if low is None and high is None:
        return 0.0
    beyond = 0
    for values, observed in blocks(fields, points):
        chosen = values[..., channel][observed[..., channel]]
        beyond += int((chosen < (-np.inf if low is None else low)).sum())
        beyond += int((chosen > (np.inf if high is None else high)).sum())
    return beyond / count


def blocks(fields: Sequence[Field], points: Points) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Values (0 where missing) and masks of consecutive blocks of time.

    Args:
        fields: episodes.
        points: positions of the points to read.
    """
    every = points is None or np.array_equal(points, np.arange(fields[0].values.shape[1]))
    chosen = slice(None) if every else points
    for field in fields:
        length = max(1, BLOCK // max(1, field.values[0].size))
        for start in range(0, len(field.times), length):
            part = slice(start, start + length)
            yield field._filled(part)[:, chosen], field.observed[part][:, chosen]
