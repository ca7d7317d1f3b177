"""Scaler: from the data's units to numbers of order one, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64

from stonet.errors import DataError
from stonet.field import Field

BLOCK = 2**24  # values looked at together


@dataclass(frozen=True)
class Scaler:
    """z = (u - mean) / std for each channel; one for all points, so that it holds at new ones."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @staticmethod
    def fit(fields: Sequence[Field], points: Int64[np.ndarray, " point"] | None = None) -> Scaler:
        """Two passes in float64 over what was observed at these points (None: at all of them).

        Block by block: the fields may be larger than memory. A constant channel keeps its scale.
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
        for values, observed in _blocks(fields, points):
            spread += np.square((values - mean) * observed).sum((0, 1))
        deviation = np.sqrt(spread / count)
        # a spread that float32 rounding of a constant could have made is no spread
        constant = (deviation <= 8 * np.finfo(np.float32).eps * np.abs(mean)) | (deviation == 0)
        return Scaler(tuple(mean.tolist()), tuple(np.where(constant, 1.0, deviation).tolist()))

    @staticmethod
    def identity(channels: int) -> Scaler:
        """The one that changes nothing."""
        return Scaler((0.0,) * channels, (1.0,) * channels)

    def normalise(
        self, values: Float[np.ndarray, "... channel"]
    ) -> Float[np.ndarray, "... channel"]:
        return ((values - np.asarray(self.mean)) / np.asarray(self.std)).astype(np.float32)

    def denormalise(
        self, values: Float[np.ndarray, "... channel"]
    ) -> Float[np.ndarray, "... channel"]:
        return (values * np.asarray(self.std) + np.asarray(self.mean)).astype(np.float32)


def _blocks(
    fields: Sequence[Field], points: Int64[np.ndarray, " point"] | None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Values and where they were observed, a stretch of time after another."""
    chosen = slice(None) if points is None else points
    for field in fields:
        length = max(1, BLOCK // max(1, field.values[0].size))
        for start in range(0, len(field.times), length):
            part = slice(start, start + length)
            yield field.values[part][:, chosen], field.observed[part][:, chosen]
