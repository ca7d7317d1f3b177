"""Arrays as JSON: numbers of float32 in their shortest form, null where missing."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

Nested = list[Any]  # of numbers and None, as deep as the array has axes


def as_json(values: np.ndarray) -> Nested:
    """The numbers of an array as nested lists; NaN and infinity are None.

    Numbers read back as float32 are the same bit by bit.

    Args:
        values: of any shape.
    """
    single = np.asarray(values, dtype=np.float32)
    shortest = single.astype("U16").astype(np.float64)
    objects = shortest.astype(object)
    objects[~np.isfinite(single)] = None
    return list(objects.tolist())


def number(value: float | np.floating) -> float | None:
    """A number, or None where there is none.

    Args:
        value: NaN where missing.
    """
    return float(value) if np.isfinite(value) else None


def encode(content: object) -> bytes:
    """A document as the bytes of compact JSON.

    Args:
        content: what JSON can hold; no NaN.
    """
    return json.dumps(content, allow_nan=False, separators=(",", ":"), ensure_ascii=False).encode()
