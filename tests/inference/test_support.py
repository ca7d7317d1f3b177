"""A forecast far from any observation says so, with the distance; silent stations are named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.small import small_field

from stonet.data.geometry import Points
from stonet.inference.forecast import support
from stonet.inference.support import silent_notes, support_notes


@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_points_beyond_the_radius_are_named_with_their_distance(kind: str) -> None:
    field = small_field()
    nodes = Points(field.points.coordinates, kind)  # type: ignore[arg-type]
    field = replace(field, points=nodes)
    queries = Points(np.array([[0.5, 0.5], [-33.0, 60.0]]), kind, ("near", "far"))  # type: ignore[arg-type]
    radius = 0.2
    sites = support(field, queries, radius)
    (note,) = support_notes(sites, queries, radius)
    assert note.startswith("1 of 2 points are far") and "'far'" in note and "'near'" not in note
    distance = sites["nearest_observation"][1]
    expected = f"{distance:,.0f} km" if kind == "sphere" else f"{distance:.3g} away"
    assert expected in note
    assert support_notes(support(field, nodes, radius), nodes, radius) == ()
    assert support_notes(support(field, queries, None), queries, None) == ()


def test_stations_without_a_value_in_the_window_are_named() -> None:
    window = small_field().between(100, 120)
    assert silent_notes(window) == ()
    mask = window.observed.copy()
    mask[:, [3, 5, 7, 9]] = False
    (note,) = silent_notes(replace(window, mask=mask))
    assert note.startswith("4 of 20 stations have no value in the last 20 frames")
    assert "'3', '5', '7' and 1 more" in note
