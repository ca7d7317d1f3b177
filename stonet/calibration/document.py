"""calibration.json: a calibration as a document of a run folder, validated when it is read."""

from __future__ import annotations

import json
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from stonet.calibration.bins import MAX_BINS, Bins
from stonet.calibration.conformal import LEVELS, Calibration
from stonet.calibration.feedback import Feedback
from stonet.calibration.scale import HOURS, MONTHS, Scale
from stonet.errors import ModelFileError

FORMAT = 1
FILE = "calibration.json"
MAX_BYTES = 16 << 20

Size = Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False)]  # of an error, or of a score
Gain = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Cube = list[list[list[Size]]]


class _Document(BaseModel):
    """The content of the file; lists are (bin, lead, channel) and alike."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: int
    channels: list[str]
    leads: Annotated[int, Field(ge=1, le=100_000)]
    rate: list[Gain]
    point: list[Gain]
    region: list[Gain]
    edges: Annotated[list[Size], Field(max_length=MAX_BINS)]
    middles: Annotated[list[Size], Field(max_length=MAX_BINS)]
    points: Annotated[list[int], Field(max_length=MAX_BINS)]
    limit: Size
    base: Cube
    hour: Cube
    month: list[list[Size]]
    quantiles: list[list[list[Size | None]]]  # None: no interval
    degrees: list[Size]

    @model_validator(mode="after")
    def _check(self) -> _Document:
        channels, bins = len(self.channels), 1 + len(self.middles)
        shapes = {
            "rate": (channels,),
            "point": (channels,),
            "region": (channels,),
            "edges": (max(bins - 2, 0),),
            "points": (bins - 1,),
            "base": (bins, self.leads, channels),
            "hour": (2, HOURS, channels),
            "month": (MONTHS, channels),
            "quantiles": (bins, len(LEVELS), channels),
            "degrees": (bins,),
        }
        for name, shape in shapes.items():
            got = np.shape(np.array(getattr(self, name), dtype=object))
            if got != shape:
                raise ValueError(f"{name} has shape {got}; expected {shape}")
        for name in ("edges", "middles"):
            if (np.diff(getattr(self, name)) < 0).any():
                raise ValueError(f"{name} do not increase")
        if (np.diff(_array(self.quantiles), axis=1) < 0).any():
            raise ValueError("quantiles do not increase with their level")
        return self


def to_bytes(calibration: Calibration, channels: tuple[str, ...]) -> bytes:
    """The content of calibration.json."""
    bins, scale, feedback = calibration.bins, calibration.scale, calibration.feedback
    quantiles = calibration.quantiles.astype(object)
    quantiles[~np.isfinite(calibration.quantiles)] = None
    content: dict[str, Any] = {
        "format": FORMAT,
        "channels": list(channels),
        "leads": scale.base.shape[1],
        "rate": feedback.rate,
        "point": feedback.point,
        "region": feedback.region,
        "edges": bins.edges,
        "middles": bins.middles,
        "points": bins.points,
        "limit": bins.limit,
        "base": scale.base.tolist(),
        "hour": scale.hour.tolist(),
        "month": scale.month.tolist(),
        "quantiles": quantiles.tolist(),
        "degrees": calibration.degrees,
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
        document = _Document.model_validate_json(data)
        got = document.format, tuple(document.channels), document.leads
        if got != (FORMAT, channels, leads):
            raise ValueError(f"format, channels, leads are {got}; expected {(FORMAT, channels, leads)}")
    except (ValidationError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ModelFileError(f"{source} is not valid: {reason}. Fit again.") from error
    return Calibration(
        Feedback(tuple(document.rate), tuple(document.point), tuple(document.region)),
        Bins(
            tuple(document.edges),
            tuple(document.middles),
            tuple(document.points),
            document.limit,
        ),
        Scale(np.array(document.base), np.array(document.hour), np.array(document.month)),
        _array(document.quantiles),
        tuple(document.degrees),
    )


def _array(quantiles: list[list[list[float | None]]]) -> np.ndarray:
    """Quantiles with NaN for None."""
    return np.array(quantiles, dtype=np.float64)
