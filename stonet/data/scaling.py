"""Scaler: normalisation of the channels, and its inverse within a physical range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from stonet.data.field import Field
from stonet.data.physical_limits import declared_bounds
from stonet.data.value_range import MARGIN, Extreme, blocks, learn_range
from stonet.errors import DataError, UsageError

FAR_SIGMAS = 20.0  # standard deviations from the mean beyond which a value may lie far outside


@dataclass(frozen=True)
class Scaler:
    """z = (u - mean) / std for each channel, and the range that no forecast leaves.

    Both are equal at all points, so that they apply to new ones. `stonet.data.value_range` learns
    the range; declared bounds replace it.

    Args:
        mean: of each channel.
        std: of each channel.
        low: lower end of the range; None: unlimited. Empty: no channel has a range.
        high: upper end of the range.
        rules: what the lower and the upper end of each channel follow from, separated by "; ".
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    rules: tuple[str, ...] = ()

    @staticmethod
    def fit(
        fields: Sequence[Field],
        points: Int64[np.ndarray, " point"] | None = None,
        bounds: Mapping[str, str] | None = None,
        margin: float = MARGIN,
    ) -> Scaler:
        """Estimate mean, standard deviation and range in passes over blocks of the fields.

        The fields may be larger than memory. A constant channel has the standard deviation 1.

        Args:
            fields: the training part.
            points: positions of the training points; None: all.
            bounds: declared range "LOW:HIGH" by channel; an empty end is as learned.
            margin: by which the extremes are widened, as a share of their distance.

        Raises:
            DataError: a channel has no observed value.
            UsageError: there is no such channel, or declared bounds exclude all values.
        """
        count, total = (np.zeros(len(fields[0].channels)) for _ in range(2))
        for values, observed in blocks(fields, points):
            count += observed.sum((0, 1))
            total += values.sum((0, 1), dtype=np.float64)  # missing values are zeros
        if (count == 0).any():
            name = fields[0].channels[int((count == 0).argmax())]
            raise DataError(
                f"Channel '{name}' has no observed value among the training data: every one is "
                "missing (NaN). There is nothing to learn from; check the variable or drop it."
            )
        mean, spread = total / count, np.zeros(len(count))
        extremes = Extreme(len(count), 1), Extreme(len(count), -1)
        for values, observed in blocks(fields, points):
            spread += np.square((values - mean) * observed).sum((0, 1))
            for extreme in extremes:
                extreme.update(values, observed)
        deviation = np.sqrt(spread / count)
        # a deviation within float32 rounding is that of a constant
        constant = (deviation <= 8 * np.finfo(np.float32).eps * np.abs(mean)) | (deviation == 0)
        scale = np.where(constant, 1.0, deviation)
        lower, upper = learn_range(fields, points, extremes, count, constant, margin)
        scaler = Scaler(
            tuple(mean.tolist()),
            tuple(scale.tolist()),
            tuple(value for value, _ in lower),
            tuple(value for value, _ in upper),
            tuple(f"{low}; {high}" for (_, low), (_, high) in zip(lower, upper, strict=True)),
        )
        return scaler.declare(fields[0].channels, bounds or {})

    @staticmethod
    def identity(channels: int) -> Scaler:
        """The scaler that changes nothing.

        Args:
            channels: number of channels.
        """
        return Scaler((0.0,) * channels, (1.0,) * channels)

    def declare(self, channels: Sequence[str], bounds: Mapping[str, str]) -> Scaler:
        """The same with declared ends of the range.

        Args:
            channels: names of the channels.
            bounds: "LOW:HIGH" by channel; an empty end stays as before.

        Raises:
            UsageError: there is no such channel, or nothing is left of a range.
        """
        if not bounds:
            return self
        unlimited = (None,) * len(channels)
        ends = [list(self.low or unlimited), list(self.high or unlimited)]
        rules = [
            rule.split("; ") for rule in self.rules or ("unlimited; unlimited",) * len(channels)
        ]
        for c, declared in enumerate(declared_bounds(channels, bounds)):
            for side, value in enumerate(declared):
                if value is not None:
                    ends[side][c], rules[c][side] = value, "declared"
        for name, low, high in zip(channels, *ends, strict=True):
            if low is not None and high is not None and low >= high:
                raise UsageError(
                    f"Bounds of '{name}' leave nothing between {low:g} and {high:g}; the other end "
                    "follows from the training data. Declare both, or check the unit."
                )
        low, high = (tuple(end) for end in ends)
        return replace(self, low=low, high=high, rules=tuple("; ".join(rule) for rule in rules))

    def normalise(
        self, values: Float[np.ndarray, "... channel"]
    ) -> Float[np.ndarray, "... channel"]:
        """Normalised values in float32.

        Args:
            values: in the data's units; NaN stays NaN.
        """
        return ((values - np.asarray(self.mean)) / np.asarray(self.std)).astype(np.float32)

    def denormalise(
        self, values: Float[np.ndarray, "... channel"]
    ) -> Float[np.ndarray, "... channel"]:
        """Values in the data's units, clipped to the range.

        Args:
            values: normalised.
        """
        values = (values * np.asarray(self.std) + np.asarray(self.mean)).astype(np.float32)
        if not self.low:
            return values
        low, high = (bound.astype(np.float32) for bound in self._range)
        return np.clip(values, low, high)

    def within(
        self, values: Float64[np.ndarray, "... channel"]
    ) -> Float64[np.ndarray, "... channel"]:
        """Values in the data's units, clipped to the range.

        Args:
            values: in the data's units.
        """
        return np.clip(values, *self._range) if self.low else values

    def in_units(self, values: Float[Tensor, "... channel"]) -> Float64[Tensor, "... channel"]:
        """As `denormalise`, in float64 for scores.

        Args:
            values: normalised.
        """
        scale, shift, low, high = (
            torch.tensor(v, dtype=torch.float64) for v in (self.std, self.mean, *self._range)
        )
        return torch.minimum(torch.maximum(values.double() * scale + shift, low), high)

    def clip(self, values: Float[Tensor, "... channel"]) -> Float[Tensor, "... channel"]:
        """Normalised values, clipped to the range.

        Args:
            values: normalised, on any device.
        """
        if not self.low:
            return values
        bounds = ((bound - self.mean) / self.std for bound in self._range)
        low, high = (torch.as_tensor(b, dtype=values.dtype, device=values.device) for b in bounds)
        return torch.minimum(torch.maximum(values, low), high)

    def outside(self, values: Float[np.ndarray, "... channel"]) -> Bool[np.ndarray, "... channel"]:
        """Which values lie outside of the range; NaN does not.

        Args:
            values: in the data's units.
        """
        low, high = self._range
        return (values < low) | (values > high)

    def far_outside(
        self, values: Float[np.ndarray, "... channel"]
    ) -> Bool[np.ndarray, "... channel"]:
        """Which values cannot be of the quantity in training: another variable or unit, a fault.

        They are more than 20 standard deviations from the mean, and farther beyond the range than
        the range is wide. NaN is not far outside.

        Args:
            values: in the data's units.
        """
        low, high = self._range
        with np.errstate(invalid="ignore"):  # infinite ranges have no far outside
            beyond = np.maximum(low - values, values - high) > high - low
        return beyond & (np.abs(values - np.asarray(self.mean)) > FAR_SIGMAS * np.asarray(self.std))

    def far_normalised(
        self, values: Float[Tensor, "... channel"]
    ) -> Bool[Tensor, "... channel"] | None:
        """Which normalised values are far outside; None: none of them.

        Args:
            values: normalised, in host memory.
        """
        if not self.low or not values.numel() or float(values.abs().max()) <= FAR_SIGMAS:
            return None
        units = values.double().numpy() * np.asarray(self.std) + np.asarray(self.mean)
        far = self.far_outside(units)
        return torch.from_numpy(far) if far.any() else None

    def describe(self, channels: Sequence[str], units: Sequence[str]) -> list[str]:
        """The range of each channel with its unit, as text.

        Args:
            channels: names.
            units: one for each channel.
        """
        texts = []
        for c, (name, unit) in enumerate(zip(channels, units, strict=True)):
            ends = [values[c] if values else None for values in (self.low, self.high)]
            low, high = ("unlimited" if end is None else f"{end:.4g}" for end in ends)
            texts.append(f"{name} {low} to {high}{f' {unit}' if unit else ''}")
        return texts

    @property
    def _range(self) -> tuple[Float64[np.ndarray, " channel"], Float64[np.ndarray, " channel"]]:
        """Both ends, infinite where there is none.

        Rounded inwards to float32, so that no rounding of a forecast leaves the range.
        """
        none = (None,) * len(self.mean)
        low = np.array([-np.inf if end is None else end for end in self.low or none])
        high = np.array([np.inf if end is None else end for end in self.high or none])
        return _rounded(low, np.inf), _rounded(high, -np.inf)


def _rounded(ends: Float64[np.ndarray, " channel"], towards: float) -> np.ndarray:
    """The nearest numbers of float32 in that direction, or the same."""
    with np.errstate(over="ignore"):
        single = ends.astype(np.float32)
        passed = single < ends if towards > 0 else single > ends
        return np.where(passed, np.nextafter(single, np.float32(towards)), single).astype(
            np.float64
        )
