"""calibration.json: a calibration as a document of a run folder, validated when it is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from stonet.calibration.bins import MAX_BINS, Bins
from stonet.calibration.conformal import LEVELS, Calibration, Intervals
from stonet.calibration.feedback import Feedback
from stonet.calibration.scale import MONTHS, PHASES, Scale
from stonet.errors import ModelFileError
from stonet.training.documents import parse_document

FORMAT = 1
FILE = "calibration.json"
MAX_BYTES = 16 << 20

Size = Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False)]  # of an error, or of a score
Gain = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Cube = list[list[list[Size]]]


class _Intervals(BaseModel):
    """Intervals; lists are (bin, lead, channel) and alike."""

    model_config = ConfigDict(extra="forbid", strict=True)

    base: Cube
    hour: Cube
    month: list[list[Size]]
    quantiles: list[list[list[Size | None]]]  # None: no interval
    degrees: list[Size]

    def check(self, bins: int, leads: int, channels: int) -> None:
        """Refuse shapes that do not fit together."""
        shapes = {
            "base": (bins, leads, channels),
            "hour": (2, PHASES, channels),
            "month": (MONTHS, channels),
            "quantiles": (bins, len(LEVELS), channels),
            "degrees": (bins,),
        }
        _check_shapes(self, shapes)
        if (np.diff(_array(self.quantiles), axis=1) < 0).any():
            raise ValueError("quantiles do not increase with their level")

    def intervals(self) -> Intervals:
        """The intervals themselves."""
        scale = Scale(np.array(self.base), np.array(self.hour), np.array(self.month))
        return Intervals(scale, _array(self.quantiles), tuple(self.degrees))


class _Document(BaseModel):
    """The content of the file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: int
    channels: Annotated[list[str], Field(min_length=1)]
    leads: Annotated[int, Field(ge=1, le=100_000)]
    rate: list[Gain]
    point: list[Gain]
    region: list[Gain]
    usual: list[list[Size]] = []
    edges: Annotated[list[Size], Field(max_length=MAX_BINS)]
    middles: Annotated[list[Size], Field(max_length=MAX_BINS)]
    points: Annotated[list[int], Field(max_length=MAX_BINS)]
    limit: Size
    corrected: _Intervals
    uncorrected: _Intervals

    @model_validator(mode="after")
    def _check(self) -> _Document:
        channels, bins = len(self.channels), 1 + len(self.middles)
        gains: dict[str, tuple[int, ...]] = {
            name: (channels,) for name in ("rate", "point", "region")
        }
        _check_shapes(self, gains | {"edges": (max(bins - 2, 0),), "points": (bins - 1,)})
        _check_shapes(self, {"usual": (self.leads, channels)} if self.usual else {})
        for name in ("edges", "middles"):
            if (np.diff(getattr(self, name)) < 0).any():
                raise ValueError(f"{name} do not increase")
        for intervals in (self.corrected, self.uncorrected):
            intervals.check(bins, self.leads, channels)
        return self


def to_bytes(calibration: Calibration, channels: tuple[str, ...]) -> bytes:
    """The content of calibration.json.

    Args:
        calibration: fitted.
        channels: names, by which a reader checks that it fits the model.
    """
    bins, feedback = calibration.bins, calibration.feedback
    content: dict[str, Any] = {
        "format": FORMAT,
        "channels": list(channels),
        "leads": calibration.corrected.scale.base.shape[1],
        "rate": feedback.rate,
        "point": feedback.point,
        "region": feedback.region,
        "usual": feedback.usual,
        "edges": bins.edges,
        "middles": bins.middles,
        "points": bins.points,
        "limit": bins.limit,
        "corrected": _content(calibration.corrected),
        "uncorrected": _content(calibration.uncorrected),
    }
    return (json.dumps(content, allow_nan=False) + "\n").encode()


def from_bytes(data: bytes, channels: tuple[str, ...], leads: int, source: str) -> Calibration:
    """The calibration in calibration.json.

    Args:
        data: content of the file.
        channels: of the trained model.
        leads: of the trained model.
        source: name of the file in messages.

    Raises:
        ModelFileError: if it is not valid, or belongs to another model.
    """
    try:
        if len(data) > MAX_BYTES:
            raise ValueError(f"{len(data)} bytes, more than {MAX_BYTES}")
        document = _Document.model_validate(parse_document(data, source))
        got = document.format, tuple(document.channels), document.leads
        if got != (FORMAT, channels, leads):
            raise ValueError(
                f"format, channels, leads are {got}; expected {(FORMAT, channels, leads)}"
            )
    except (ValidationError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ModelFileError(f"{source} is not valid: {reason}. Fit again.") from error
    return Calibration(
        Feedback(
            tuple(document.rate),
            tuple(document.point),
            tuple(document.region),
            tuple(map(tuple, document.usual)),
        ),
        Bins(
            tuple(document.edges),
            tuple(document.middles),
            tuple(document.points),
            document.limit,
        ),
        document.corrected.intervals(),
        document.uncorrected.intervals(),
    )


def _content(intervals: Intervals) -> dict[str, Any]:
    """Intervals as lists."""
    quantiles = intervals.quantiles.astype(object)
    quantiles[~np.isfinite(intervals.quantiles)] = None
    return {
        "base": intervals.scale.base.tolist(),
        "hour": intervals.scale.hour.tolist(),
        "month": intervals.scale.month.tolist(),
        "quantiles": quantiles.tolist(),
        "degrees": intervals.degrees,
    }


def _check_shapes(part: BaseModel, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse lists of another shape."""
    for name, shape in shapes.items():
        got = np.shape(np.array(getattr(part, name), dtype=object))
        if got != shape:
            raise ValueError(f"{name} has shape {got}; expected {shape}")


def _array(quantiles: list[list[list[float | None]]]) -> np.ndarray:
    """Quantiles with NaN for None."""
    return np.array(quantiles, dtype=np.float64)
