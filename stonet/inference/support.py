"""Sentences on how well observations support a forecast: silent stations, and distant ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stonet.data.field import Field
from stonet.data.geometry import EARTH_RADIUS_KM, Points

EXTRAPOLATED = (
    2.0  # the level of `support` at points beyond the decoder's radius of any observation
)
MAX_NAMED = 3


def support_notes(
    sites: Mapping[str, np.ndarray], points: Points, radius: float | None
) -> tuple[str, ...]:
    """What a user must know of points that no observation is near.

    Args:
        sites: `nearest_observation` and `support` of each point, as a forecast has them.
        points: of the forecast.
        radius: of the decoder.

    Example:
        >>> support_notes(result.sites, result.points, trained.config.graph.decoder_radius)
    """
    distance = sites["nearest_observation"]
    far = np.flatnonzero(sites["support"] == EXTRAPOLATED)
    if not len(far):
        return ()
    order = far[np.argsort(-distance[far], kind="stable")]
    on_sphere = points.kind == "sphere"
    unit = " km" if on_sphere else ""
    usual = ""
    if radius is not None:
        reach = radius * EARTH_RADIUS_KM if on_sphere else radius
        usual = f" (the model interpolates up to {_number(reach)}{unit})"
    names = [f"'{points.names[i]}' {_number(distance[i])}{unit}" for i in order[:MAX_NAMED]]
    return (
        f"{len(far)} of {len(points)} points are far from any observation{usual}: "
        f"{_listed(names, len(far))} away. Their forecasts are extrapolations.",
    )


def silent_notes(window: Field) -> tuple[str, ...]:
    """The stations without any value in the frames that a forecast starts from.

    Args:
        window: the frames that a forecast starts from.
    """
    silent = np.flatnonzero(~window.observed.any((0, 2)))
    if not len(silent):
        return ()
    names = [f"'{window.points.names[i]}'" for i in silent[:MAX_NAMED]]
    return (
        f"{len(silent)} of {len(window.points)} stations have no value in the last "
        f"{len(window.times)} frames: {_listed(names, len(silent))}. They are forecast from other "
        "stations.",
    )


def _number(distance: float) -> str:
    return f"{distance:,.0f}" if distance >= 100 else f"{distance:.3g}"


def _listed(names: Sequence[str], count: int) -> str:
    rest = count - len(names)
    return ", ".join(names) + (f" and {rest} more" if rest else "")
