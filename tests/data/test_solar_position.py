"""Solar position against the almanac: solstices, equinoxes, equation of time, horizon."""

from __future__ import annotations

import numpy as np
import pytest

from stonet.data.durations import SECOND
from stonet.data.geometry import Points
from stonet.data.solar_position import sun_direction
from stonet.data.time_spec import TimeSpec

HOUR = 3600 * SECOND
TILT = 23.438  # degrees, of the Earth's axis


def at(*texts: str) -> np.ndarray:
    """Nanoseconds since 1970, UTC."""
    return np.array(texts, "datetime64[ns]").astype(np.int64)


def subsolar(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Latitude and longitude of the point that has the sun overhead, in degrees."""
    x, y, z = np.moveaxis(sun_direction(times).astype(np.float64), -1, 0)
    return np.rad2deg(np.arcsin(z)), np.rad2deg(np.arctan2(y, x))


def elevation(latitude: float, longitude: float, times: np.ndarray) -> np.ndarray:
    place = Points(np.array([[latitude, longitude]], float), "sphere").embedded[0]
    return np.rad2deg(np.arcsin(sun_direction(times) @ place))


@pytest.mark.parametrize(
    ("moment", "latitude"),
    [  # published to the minute
        ("1980-06-21T05:47", TILT),
        ("2000-03-20T07:35", 0.0),
        ("2000-12-21T13:37", -TILT),
        ("2019-09-23T07:50", 0.0),
        ("2020-06-20T21:44", TILT),
        ("2024-03-20T03:06", 0.0),
        ("2030-12-21T20:09", -TILT),
    ],
)
def test_solstices_and_equinoxes(moment: str, latitude: float) -> None:
    assert subsolar(at(moment))[0] == pytest.approx(latitude, abs=0.02)


@pytest.mark.parametrize(
    ("day", "longitude"),
    [("11-03", -4.1), ("02-11", 3.56), ("04-15", 0.0), ("06-13", 0.0), ("09-01", 0.0)],
)
@pytest.mark.parametrize("year", [1979, 2006, 2026])
def test_the_equation_of_time(year: int, day: str, longitude: float) -> None:
    """A sundial is ahead by 16.4 minutes in November, behind by 14.2 in February: 4 a degree."""
    assert subsolar(at(f"{year}-{day}T12:00"))[1] == pytest.approx(longitude, abs=0.12)


def test_the_sun_moves_west_by_fifteen_degrees_an_hour() -> None:
    _, longitude = subsolar(at("2020-05-05") + HOUR * np.arange(24 * 40))
    step = np.diff(np.rad2deg(np.unwrap(np.deg2rad(longitude))))
    np.testing.assert_allclose(step, -15, atol=0.01)


def test_the_day_is_symmetric_about_solar_noon() -> None:
    """Within what the declination changes in half a day."""
    for moment in ("2021-06-21T00:00", "2021-12-21T18:00"):
        noon_utc = at(moment)
        longitude = subsolar(noon_utc)[1].item()
        hours = HOUR * np.arange(13)
        for latitude in (-70.0, -20.0, 0.0, 51.5):
            before = elevation(latitude, longitude, noon_utc - hours)
            after = elevation(latitude, longitude, noon_utc + hours)
            np.testing.assert_allclose(before, after, atol=0.02)
            assert before.argmax() == 0


def test_day_and_night_on_the_globe() -> None:
    hours = at("2022-12-21") + HOUR * np.arange(24)
    assert (elevation(75, 10, hours) < 0).all()  # polar night
    assert (elevation(-75, 10, hours) > 0).all()  # midnight sun
    for latitude in (-60.0, 0.0, 60.0):  # at an equinox every place has twelve hours
        minutes = at("2022-03-20T12:00") + 60 * SECOND * np.arange(-720, 720)
        assert (elevation(latitude, 0, minutes) > 0).mean() == pytest.approx(0.5, abs=0.005)


def test_a_known_elevation() -> None:
    """90 - latitude + declination at noon: Greenwich at midsummer, Cairo at midwinter."""
    for latitude, longitude, day, declination in (
        (51.48, 0.0, "2023-06-21", TILT),
        (30.05, 31.25, "2023-12-22", -TILT),
    ):
        minutes = at(day) + 60 * SECOND * np.arange(1440)
        highest = elevation(latitude, longitude, minutes).max()
        assert highest == pytest.approx(90 - latitude + declination, abs=0.02)


def test_directions_have_unit_length_and_do_not_depend_on_each_other() -> None:
    moments = at("1950-01-01") + np.random.default_rng(0).integers(0, 2**61, (5, 7))
    every = sun_direction(moments)
    np.testing.assert_allclose(np.linalg.norm(every, axis=-1), 1, rtol=1e-6)
    for place in np.ndindex(5, 7):
        np.testing.assert_array_equal(every[place], sun_direction(moments[(*place, None)])[0])


def test_solar_positions_extend_equally_before_and_after_the_issue_time() -> None:
    time_spec = TimeSpec(step=HOUR, past=5, horizon=3, calendar=True)
    np.testing.assert_array_equal(time_spec.around, HOUR * np.array([-3, -2, -1, 0, 1, 2, 3]))
