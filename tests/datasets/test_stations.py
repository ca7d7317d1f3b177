"""The simulated stations: their network and gaps, and the weather they stand in."""

from __future__ import annotations

import hashlib
import inspect
import subprocess
import sys

import numpy as np
import pytest
from helpers.paths import ROOT

from stonet.data.durations import DAY, UNITS
from stonet.data.field import Dataset
from stonet.data.geometry import EARTH_RADIUS_KM, GEOMETRIES, Points
from stonet.data.solar_position import sun_direction
from stonet.datasets import DATASETS, earth, open_dataset
from stonet.datasets import stations as simulated
from stonet.datasets.earth import LAPSE, Storms, daily_insolation, day_cycle, terrain, weather
from stonet.datasets.stations import START, STEP, earth_weather, gaps, network, outages, stations
from stonet.errors import DataError
from stonet.plotting import natural_earth

HOUR = UNITS["h"]
SPHERE = GEOMETRIES["sphere"]


@pytest.fixture(scope="module")
def data() -> Dataset:
    return stations(days=60)


def calm() -> Storms:
    """No storm."""
    every = Storms.draw(0, 0, DAY)
    return Storms(**{name: column[:0] for name, column in vars(every).items()})


def one_storm(**changes: float) -> Storms:
    """A storm born at 50 N on the meridian of Greenwich that moves east at 10 m/s for ten days."""
    parts = {"birth": 0, "life": 10 * DAY, "speed": 10.0, "warmth": 8.0, "wind": 10.0,
             "radius": 800.0, "front": 150.0}  # fmt: skip
    columns = {name: np.array([value]) for name, value in (parts | changes).items()}
    start = SPHERE.embed(np.array([[50.0, 0.0]]))
    return Storms(start=start, heading=np.array([[0.0, 1.0, 0.0]]), **columns)


def on_track(hours: float) -> np.ndarray:
    """Where its centre is so many hours after birth, as latitude and longitude."""
    angle = hours * 3600 * 0.010 / EARTH_RADIUS_KM
    start = SPHERE.embed(np.array([[50.0, 0.0]]))[0]
    x, y, z = np.cos(angle) * start + np.sin(angle) * np.array([0.0, 1.0, 0.0])
    return np.rad2deg([np.arcsin(z), np.arctan2(y, x)])


# The data set


def test_the_data_set_agrees_with_its_card(data):
    field, card = data.episodes[0], DATASETS["stations"].card
    assert field.channels == ("air_temperature", "eastward_wind", "northward_wind")
    assert field.units == ("degC", "m s-1", "m s-1") and field.calendar
    assert card.shape == f"{simulated.DAYS * DAY // STEP} x {len(field.points)} x 3"
    assert (np.diff(field.times) == STEP).all() and card.step == "3 h"
    assert len(data.seen) == 240 and len(data.unseen) == 60
    assert "simulated" in card.kind and "no value is real" in card.kind


def digest(seed: int) -> str:
    field = stations(seed, count=30, days=9, unseen=5).episodes[0]
    return hashlib.sha256(
        field.points.coordinates.tobytes() + field._filled().tobytes()
    ).hexdigest()


def test_it_is_deterministic_by_seed_in_every_process():
    code = f"""if True:
        import hashlib
        from stonet.datasets.stations import stations
        {inspect.getsource(digest).replace(chr(10), chr(10) + " " * 8)}
        print(digest(1))"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest(1) != digest(2)


def test_it_opens_by_name_with_options():
    small = open_dataset("stations", count=12, days=3, unseen=2)
    assert small.episodes[0].values.shape == (24, 12, 3) and len(small.unseen) == 2
    with pytest.raises(DataError, match="at least one"):
        stations(count=5, unseen=5)


def test_values_are_physical(data):
    temperature, east, north = np.moveaxis(data.episodes[0].values, 2, 0)
    assert np.nanmin(temperature) > -60 and np.nanmax(temperature) < 55
    speed = np.hypot(east, north)
    assert np.nanmax(speed) < 50 and 2 < np.nanmean(speed) < 6


def test_stations_are_on_land_and_clustered_as_networks_are(data):
    coast = natural_earth.lines("coast", (-180, -90, 180, 90), 0.012)
    edges = np.concatenate([np.concatenate([line[:-1], line[1:]], axis=1) for line in coast])

    def crossings_to_the_north(lat: float, lon: float) -> int:
        x, y, x_end, y_end = edges[(edges[:, 0] <= lon) != (edges[:, 2] <= lon)].T
        return int((y + (lon - x) / (x_end - x) * (y_end - y) > lat).sum())

    on_land = [crossings_to_the_north(lat, lon) % 2 for _, lat, lon in data.points]
    assert np.mean(on_land) > 0.98
    embedded = data.points.embedded
    km = EARTH_RADIUS_KM * SPHERE.distance(embedded[:, None], embedded)
    nearest = np.sort(km, axis=1)[:, 1]
    random = np.sqrt(4 * np.pi * EARTH_RADIUS_KM**2 / 300) / 2  # were they spread at random
    assert np.median(nearest) < random / 3 and nearest.max() > random
    assert (nearest > 0.9 * simulated.SPACING).mean() > 0.9


def test_held_out_stations_are_spread_as_the_others(data):
    embedded = data.points.embedded
    to_seen = SPHERE.distance(embedded[list(data.unseen)][:, None], embedded[data.seen]).min(1)
    assert np.median(to_seen) * EARTH_RADIUS_KM < 300


# Gaps


def test_outages_have_their_share_and_length():
    failed = outages(np.random.default_rng(0), 4000, 400, 0.05, 16.0)
    assert failed.mean() == pytest.approx(0.05, rel=0.05)
    begins = failed[1:] & ~failed[:-1]
    assert failed[1:].sum() / begins.sum() == pytest.approx(16.0, rel=0.1)


def test_the_share_of_missing_values_is_that_of_its_parts():
    lost = gaps(7, 2920, 300)
    temperature, east, north = lost.mean((0, 1))
    late = simulated.LATE_SHARE * simulated.LATEST / 2 / (365 * DAY)
    kept = (1 - simulated.MISSED) * (1 - simulated.OUTAGE_SHARE) * (1 - late)
    assert temperature == pytest.approx(1 - kept, abs=0.01) and east == north
    assert east == pytest.approx(1 - kept * (1 - simulated.WIND_SHARE), abs=0.015)
    assert (lost[..., 1] >= lost[..., 0]).all()


def test_values_are_the_weather_and_what_one_station_adds(data):
    field = data.episodes[0]
    field = field.take(np.flatnonzero(field.observed.mean((0, 2)) > 0.5))
    added = field.values - earth_weather(field.points, field.times).values
    bias = np.nanmean(added, 0)
    assert bias.std(0) == pytest.approx([simulated.BIAS, 0.15, 0.15], abs=0.1)
    assert np.abs(bias.mean(0)).max() < 0.15
    assert np.nanstd(added - bias, (0, 1)) == pytest.approx(simulated.LOCAL, rel=0.05)
    both = np.nanmean((added - bias)[1:] * (added - bias)[:-1], (0, 1))
    memory = np.exp(-STEP / simulated.LOCAL_LAG)
    assert both / np.nanvar(added - bias, (0, 1)) == pytest.approx(memory, abs=0.05)


# Sun and elevation


def test_daily_insolation_is_the_mean_of_the_sun():
    latitude = np.array([-89.9, -66.0, -30.0, 0.0, 45.0, 70.0])
    place = SPHERE.embed(np.stack([latitude, np.linspace(-170, 160, 6)], axis=1))
    for day in (0, 80, 172, 300):
        times = START + day * DAY + np.arange(0, DAY, HOUR // 6)
        mean = np.maximum(sun_direction(times) @ place.T, 0).mean(0)
        assert daily_insolation(latitude, times[72:73])[0] == pytest.approx(mean, abs=3e-3)


def test_the_day_is_warmest_after_local_noon_at_every_longitude():
    longitude = np.arange(-180.0, 180.0, 15.0)
    times = START + 80 * DAY + np.arange(0, DAY, HOUR // 4)
    for latitude in (-40.0, 0.0, 50.0):
        place = np.stack([np.full(24, latitude), longitude], axis=1)
        warm = weather(place, times, calm(), np.zeros(24)).temperature.argmax(0) / 4
        local = (warm + longitude / 15) % 24
        assert (local > 13).all() and (local < 16).all()


def test_the_day_cycle_adds_nothing_to_a_day():
    place = SPHERE.embed(np.array([[52.0, 13.0], [-20.0, -60.0]]))
    times = START + 40 * DAY + np.arange(0, DAY, HOUR)
    assert np.abs(day_cycle(place, times).mean(0)).max() < 2e-3


def test_summer_is_warm_on_both_sides_of_the_equator():
    place = np.array([[50.0, 10.0], [-35.0, -62.0]])
    days = START + DAY * np.arange(365) + DAY // 2
    north, south = weather(place, days, calm(), np.zeros(2)).temperature.argmax(0)
    assert 182 < north < 240 and (south < 60 or south > 355)


def test_temperature_falls_with_elevation_at_the_lapse_rate():
    place = np.tile([[46.0, 8.0]], (4, 1))
    height = np.array([0.0, 500.0, 2000.0, 4000.0])
    times = START + STEP * np.arange(20)
    temperature = weather(place, times, Storms.draw(1, START, START + 3 * DAY), height).temperature
    assert temperature[:, 1:] - temperature[:, :1] == pytest.approx(
        np.broadcast_to(-LAPSE * height[1:], (20, 3))
    )


def test_mountains_are_where_they_are():
    alps, tibet, amazonia, kansas = terrain(
        np.array([[46.2, 9.0], [33.5, 88.0], [-4.0, -62.0], [38.0, -97.5]])
    )
    assert alps > 1000 and tibet > 3000 and amazonia < 300 and kansas < 700
    assert (terrain(network().coordinates) > 0).all()


# Storms


def test_a_front_passes_at_the_speed_of_its_storm():
    places = np.array([on_track(hours) for hours in (90.0, 110.0, 130.0)])
    minutes = np.arange(70 * 60, 160 * 60, 5)
    passing = one_storm().weather(SPHERE.embed(places), minutes * 60 * 10**9).temperature
    falls = minutes[np.diff(passing, axis=0).argmin(0)] / 60
    assert falls == pytest.approx([90.0, 110.0, 130.0], abs=0.2)
    metres = 1e3 * EARTH_RADIUS_KM * np.arccos(np.prod(SPHERE.embed(places[[0, 2]]), axis=0).sum())
    assert metres / (falls[2] - falls[0]) / 3600 == pytest.approx(10.0, rel=0.01)


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_wind_turns_round_a_storm_as_its_hemisphere_has_it(side):
    lat, lon = on_track(120.0)
    around = np.array([[lat, lon + 8], [lat + 5, lon], [lat, lon - 8], [lat - 5, lon]])
    storm = one_storm()
    mirrored = np.array([1.0, 1.0, side])
    storm = Storms(**vars(storm) | {"start": storm.start * mirrored})
    around[:, 0] *= side
    time = np.array([120 * HOUR])
    _, east, north = (row[0] for row in storm.weather(SPHERE.embed(around), time))
    assert north[0] * side > 5 and north[2] * side < -5  # from the equator ahead of the storm
    assert east[1] < -5 and east[3] > 5  # westerlies on the side of the equator
    centre = storm.weather(SPHERE.embed(np.array([[side * lat, lon]])), time)
    assert np.hypot(centre.east, centre.north)[0, 0] < 1e-6


def test_storms_live_where_and_when_they_should():
    storms = Storms.draw(5, START, START + 100 * DAY)
    assert np.allclose(np.linalg.norm(storms.start, axis=1), 1)
    assert np.abs((storms.start * storms.heading).sum(1)).max() < 1e-12
    assert storms.life.max() < earth.BEFORE
    alive = [((storms.birth < t) & (t < storms.birth + storms.life)).sum()
             for t in START + DAY * np.arange(100)]  # fmt: skip
    assert np.mean(alive) == pytest.approx(8 * earth.STORMS_PER_DAY, rel=0.15)
    place = SPHERE.embed(np.array([[45.0, 45.0]]))
    before = np.array([storms.birth.min() - 1, (storms.birth + storms.life).max() + 1])
    assert not np.any(storms.weather(place, before))


def test_places_feel_fronts_from_the_west_first():
    line = Points(np.array([[52.0, 5.0], [52.0, 15.0]]), "sphere")
    times = START + HOUR * np.arange(24 * 60)
    west, east = (row - row.mean() for row in
                  earth_weather(line, times).values[..., 0].astype(float).T)  # fmt: skip
    daily = np.ones(24) / 24
    west, east = (np.convolve(row, daily, "valid") for row in (west, east))
    lags = np.arange(-40, 41)
    agreement = [np.corrcoef(west[40:-40], np.roll(east, -lag)[40:-40])[0, 1] for lag in lags]
    assert 5 < lags[int(np.argmax(agreement))] < 40
