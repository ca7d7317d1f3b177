"""Station files for tests of the command line."""

from __future__ import annotations

import json
from pathlib import Path

from helpers.shell import Shell
from helpers.small import small_field
from stonet.data.field import Field
from stonet.data.geometry import Points


def on_earth(frames: int = 120, seed: int = 0) -> Field:
    """`small_field`, somewhere in the Alps."""
    field = small_field(frames, seed=seed)
    places = Points(field.points.coordinates * [2, 5] + [46, 6], "sphere", field.points.names)
    return Field(field.values, field.times, places, ("t2m",), field.mask, ("degC",))


def answer(stonet: Shell, *words: str | Path) -> dict:
    told = stonet(*words, "--json")
    assert told.code == 0, told.err
    return json.loads(told.out)
