"""Speed and direction as components and back: components can be averaged and forecast, angles not.

A direction d in degrees, clockwise from north, is where the wind comes from. With the speed s,

    eastward = -s sin(d),    northward = -s cos(d).

Directions where something moves to, as of ocean currents (CF: ..._to_direction), have the other
sign. Where the speed is 0 both components are 0, whatever the direction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float32

from stonet.data.field import Field
from stonet.errors import UsageError, unknown_name

EASTWARD, NORTHWARD = "eastward_wind", "northward_wind"  # names of the components, as of CF
SPEED, DIRECTION = "wind_speed", "wind_from_direction"
Component = Float32[np.ndarray, "time node"]


def to_components(field: Field, speed: str, direction: str) -> Field:
    """The field with components in place of a speed and a direction.

    Args:
        field: has both channels.
        speed: its name; the components have its unit.
        direction: its name; in degrees.

    Raises:
        UsageError: there is no such channel, or both are one.

    Example:
        >>> to_components(field, "wind_speed", "wind_direction").channels
        ('eastward_wind', 'northward_wind')
    """
    s, d = (_channel(field, name) for name in (speed, direction))
    sign = 1.0 if _is_towards(field, direction) else -1.0
    angle = np.deg2rad(d.astype(np.float64))
    size = sign * s.astype(np.float64)
    calm = s == 0
    east, north = (np.where(calm, 0.0, size * wave(angle)) for wave in (np.sin, np.cos))
    unit = field.units[field.channels.index(speed)]
    return _replaced(field, {speed: (EASTWARD, east, unit), direction: (NORTHWARD, north, unit)})


def to_speed_and_direction(field: Field, east: str = EASTWARD, north: str = NORTHWARD) -> Field:
    """The field with a speed and the direction that it comes from in place of components.

    Args:
        field: has both channels.
        east: name of the eastward component; the speed has its unit.
        north: name of the northward component.

    Raises:
        UsageError: there is no such channel, or both are one.
    """
    u, v = (_channel(field, name).astype(np.float64) for name in (east, north))
    direction = np.rad2deg(np.arctan2(-u, -v)) % 360.0
    unit = field.units[field.channels.index(east)]
    changes = {east: (SPEED, np.hypot(u, v), unit), north: (DIRECTION, direction, "degree")}
    return _replaced(field, changes)


def _channel(field: Field, name: str) -> Component:
    """The values of a channel; NaN where missing."""
    if name not in field.channels:
        raise unknown_name("variable", name, field.channels)
    return field.values[..., field.channels.index(name)]


def _is_towards(field: Field, name: str) -> bool:
    """Whether a direction is where something moves to."""
    standard = str(field.channel_attrs.get(name, {}).get("standard_name", name))
    return "to_direction" in standard


def _replaced(field: Field, changes: dict[str, tuple[str, np.ndarray, str]]) -> Field:
    """The field with other channels in the place of some: name, values and unit of each."""
    if len(changes) < 2:
        raise UsageError("Speed and direction, or both components, must be two variables.")
    names, units, columns = list(field.channels), list(field.units), []
    about: dict[str, Any] = dict(field.channel_attrs)
    for number, old in enumerate(field.channels):
        if old not in changes:
            columns.append(field.values[..., number])
            continue
        name, values, units[number] = changes[old]
        if name in field.channels and name not in changes:
            raise UsageError(f"The data have a variable '{name}' already. Leave out '{old}'.")
        columns.append(values.astype(np.float32))
        names[number] = name
        about.pop(old, None)
        about[name] = {"standard_name": name}
    return replace(
        field,
        values=np.stack(columns, axis=-1),
        mask=None,
        channels=tuple(names),
        units=tuple(units),
        channel_attrs=about,
    )
