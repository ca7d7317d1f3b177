"""Scaler: normalisation of the channels, and its inverse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from stonet.data.field import Field
from stonet.errors import DataError

BLOCK = 2**20  # values that are read together
MIN_SHARE_ON_BOUND = 0.005  # of all values that equal an extreme, for it to be a bound
MIN_ON_BOUND = 10  # values that equal an extreme, for it to be a bound


@dataclass(frozen=True)
class Scaler:
    """z = (u - mean) / std for each channel, equal at all points so that it applies to new ones.

    `low` and `high` are bounds that many values equal, such as no power at night or saturated air:
    None for a channel without a bound, empty if no channel has one.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()

    @staticmethod
    def fit(fields: Sequence[Field], points: Int64[np.ndarray, " point"] | None = None) -> Scaler:
        """Estimate mean, standard deviation and bounds in two passes over blocks of the fields.

        The fields may be larger than memory. A constant channel has the standard deviation 1.

        Args:
            fields: the training part.
            points: positions of the training points; None: all.

        Raises:
            DataError: a channel has no observed value.
        """
        count, total = (np.zeros(len(fields[0].channels)) for _ in range(2))
        for values, observed in _blocks(fields, points):
            count += observed.sum((0, 1))
            total += values.sum((0, 1), dtype=np.float64)  # missing values are zeros
        if (count == 0).any():
            name = fields[0].channels[int((count == 0).argmax())]
            raise DataError(
                f"Channel '{name}' has no observed value among the training data: every one is "
                "missing (NaN). There is nothing to learn from; check the variable or drop it."
            )
        mean, spread = total / count, np.zeros(len(count))
        low, high = (_Extreme(len(count), sign) for sign in (1, -1))
        for values, observed in _blocks(fields, points):
            spread += np.square((values - mean) * observed).sum((0, 1))
            low.update(values, observed)
            high.update(values, observed)
        deviation = np.sqrt(spread / count)
        # a deviation within float32 rounding is that of a constant
        constant = (deviation <= 8 * np.finfo(np.float32).eps * np.abs(mean)) | (deviation == 0)
        scale = np.where(constant, 1.0, deviation)
        bounds = (low.bound(count, ~constant), high.bound(count, ~constant))
        return Scaler(tuple(mean.tolist()), tuple(scale.tolist()), *bounds)

    @staticmethod
    def identity(channels: int) -> Scaler:
        """The scaler that changes nothing."""
        return Scaler((0.0,) * channels, (1.0,) * channels)

    def normalise(
        self, values: Float[np.ndarray, "... channel"]
    ) -> Float[np.ndarray, "... channel"]:
        """Normalised values in float32."""
        return ((values - np.asarray(self.mean)) / np.asarray(self.std)).astype(np.float32)

    def denormalise(
        self, values: Float[np.ndarray, "... channel"]
    ) -> Float[np.ndarray, "... channel"]:
        """Values in the data's units, clipped to the bounds."""
        values = (values * np.asarray(self.std) + np.asarray(self.mean)).astype(np.float32)
        if not self.low:
            return values
        low, high = (bound.astype(np.float32) for bound in self._bounds)
        return np.clip(values, low, high)

    def within(
        self, values: Float64[np.ndarray, "... channel"]
    ) -> Float64[np.ndarray, "... channel"]:
        """Values in the data's units, clipped to the bounds."""
        return np.clip(values, *self._bounds) if self.low else values

    def in_units(self, values: Float[Tensor, "... channel"]) -> Float64[Tensor, "... channel"]:
        """As `denormalise`, in float64 for scores."""
        scale, shift = (torch.tensor(v, dtype=torch.float64) for v in (self.std, self.mean))
        return self.clip(values.double()) * scale + shift

    def clip(self, values: Float[Tensor, "... channel"]) -> Float[Tensor, "... channel"]:
        """Normalised values, clipped to the bounds."""
        if not self.low:
            return values
        bounds = ((bound - self.mean) / self.std for bound in self._bounds)
        low, high = (torch.as_tensor(b, dtype=values.dtype, device=values.device) for b in bounds)
        return torch.minimum(torch.maximum(values, low), high)

    @property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The bounds as arrays, infinite where there is none."""
        low = np.array([-np.inf if bound is None else bound for bound in self.low])
        return low, np.array([np.inf if bound is None else bound for bound in self.high])


class _Extreme:
    """The smallest (sign 1) or largest (sign -1) value of each channel and its frequency.

    The second smallest is counted as well: rounded values repeat, but a bound is more frequent.
    """

    def __init__(self, channels: int, sign: int) -> None:
        self.sign = sign
        self.levels: list[dict[float, int]] = [{} for _ in range(channels)]

    def update(self, values: np.ndarray, observed: np.ndarray) -> None:
        """Count the extremes of a block."""
        turned = np.where(observed, self.sign * values, np.inf)
        least = turned.min((0, 1), initial=np.inf)
        after = turned.min((0, 1), initial=np.inf, where=turned > least)
        for level in (least, after):
            times = (turned == level).sum((0, 1)).tolist()
            for known, value, count in zip(self.levels, level.tolist(), times, strict=True):
                if value < np.inf:
                    known[value] = known.get(value, 0) + count
        self.levels = [dict(sorted(known.items())[:2]) for known in self.levels]

    def bound(self, count: np.ndarray, varies: np.ndarray) -> tuple[float | None, ...]:
        """The extreme of each channel if enough values equal it, else None."""
        found: list[float | None] = []
        for known, every, possible in zip(self.levels, count, varies, strict=True):
            (value, times), (_, others) = [*known.items(), (np.inf, 0), (np.inf, 0)][:2]
            frequent = times >= max(MIN_SHARE_ON_BOUND * every, MIN_ON_BOUND) and times > others
            found.append(self.sign * value if possible and frequent else None)
        return tuple(found)


def _blocks(
    fields: Sequence[Field], points: Int64[np.ndarray, " point"] | None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Values (0 where missing) and masks of consecutive blocks of time."""
    every = points is None or np.array_equal(points, np.arange(fields[0].values.shape[1]))
    chosen = slice(None) if every else points
    for field in fields:
        length = max(1, BLOCK // max(1, field.values[0].size))
        for start in range(0, len(field.times), length):
            part = slice(start, start + length)
            yield field._filled(part)[:, chosen], field.observed[part][:, chosen]
