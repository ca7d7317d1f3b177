"""Station data and JSON results for tests of the command line."""

from __future__ import annotations

import json
from pathlib import Path

from helpers.shell import Shell
from helpers.small import small_field
from stonet.data.field import Field
from stonet.data.geometry import Points


def alpine_field(frames: int = 120, seed: int = 0) -> Field:
    """`small_field` with positions in the Alps."""
    field = small_field(frames, seed=seed)
    points = Points(field.points.coordinates * [2, 5] + [46, 6], "sphere", field.points.names)
    return Field(field.values, field.times, points, ("t2m",), field.mask, ("degC",))


def json_result(stonet: Shell, *words: str | Path) -> dict:
    """The JSON object that a successful command prints."""
    result = stonet(*words, "--json")
    assert result.code == 0, result.err
    return json.loads(result.out)
