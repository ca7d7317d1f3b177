"""Scaler: from the data's units to numbers of order one, and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from stonet.errors import DataError
from stonet.field import Field


@dataclass(frozen=True)
class Scaler:
    """z = (u - mean) / std for each channel; one for all points, so that it holds at new ones."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @staticmethod
    def fit(fields: Iterable[Field]) -> Scaler:
        """Two passes in float64 over what was observed; a constant channel keeps its scale."""
        fields = tuple(fields)
        channels = fields[0].channels
        mean, std = [], []
        for number, name in enumerate(channels):
            parts = [f.values[..., number][f.observed[..., number]] for f in fields]
            count = sum(part.size for part in parts)
            if count == 0:
                raise DataError(
                    f"Channel '{name}' has no observed value among the training data: every one is "
                    "missing (NaN). There is nothing to learn from; check the variable or drop it."
                )
            centre = sum(float(part.sum(dtype=np.float64)) for part in parts) / count
            # a float64 scalar, unlike Python's float, takes the float32 values to float64
            spread = sum(float(np.square(part - np.float64(centre)).sum()) for part in parts)
            deviation = float(np.sqrt(spread / count))
            # a spread that float32 rounding of a constant could have made is no spread
            constant = deviation <= 8 * np.finfo(np.float32).eps * abs(centre)
            mean.append(centre)
            std.append(1.0 if constant or deviation == 0 else deviation)
        return Scaler(tuple(mean), tuple(std))

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
