"""Query points by name and beside a station."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.contracts import perturbed_model, small_field

from stonet.data.geometry import Points
from stonet.errors import UsageError
from stonet.inference.forecast import forecast
from stonet.inference.places import find_places, snap_to_stations

STATIONS = Points(
    np.array([[41.88, -87.63], [40.71, -74.01], [34.05, -118.24]]),
    "sphere",
    ("Chicago", "New York", "Los Angeles"),
)
METRE = 1 / 111_195  # in degrees of latitude


@pytest.mark.parametrize("name", ["Chicago", "chicago", ["Chicago"]])
def test_a_station_is_found_by_its_name(name) -> None:
    places, notes = find_places(name, STATIONS)
    assert places is not None and not notes
    assert list(places) == [("Chicago", 41.88, -87.63)]


def test_names_of_the_training_points_are_known_too() -> None:
    data = STATIONS.take(np.array([1]))
    places, _ = find_places(["Los Angeles", "New York", (1.0, 2.0)], data, STATIONS)
    assert places is not None and places.names == ("Los Angeles", "New York", "1.0,2.0")


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="Did you mean 'Chicago'"):
        find_places("Chicgo", STATIONS)


@pytest.mark.parametrize("metres", [0, 5, 99, 101])
def test_a_place_within_a_hundred_metres_is_the_station(metres) -> None:
    place = (41.88 + metres * METRE, -87.63)
    places, notes = find_places(place, STATIONS)
    apart, none = find_places(place, STATIONS, snap=False)
    assert places is not None and apart is not None and not none
    snapped = 0 < metres <= 100
    assert (places != apart) == bool(notes) == snapped
    assert not notes or f"{metres} m from station 'Chicago'" in notes[0]


def test_on_a_plane_the_tolerance_follows_the_distances_between_stations() -> None:
    stations = Points(np.array([[0.0, 0.0], [1000.0, 0.0], [0.0, 1000.0]]))
    places = Points(np.array([[0.5, 0.5], [3.0, 3.0]]))
    moved, notes = snap_to_stations(places, stations)
    assert moved.coordinates.tolist() == [[0.0, 0.0], [3.0, 3.0]] and len(notes) == 1


def test_a_snapped_place_has_the_forecast_of_the_station() -> None:
    trained, field = perturbed_model(), small_field("sphere", channels=2)
    beside = field.points.coordinates[4] + [5 * METRE, 0]
    places, _ = find_places(tuple(beside), field.points)
    made, own = forecast(trained, field, places), forecast(trained, field)
    np.testing.assert_allclose(made.values[:, 0], own.values[:, 4], atol=1e-4)
    assert made.sites["support"].tolist() == [0.0]
