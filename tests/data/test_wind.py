"""Components of the wind: closed forms, the way back, and reading files with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.small import HOUR, small_field

import stonet
from stonet.data.field import Field
from stonet.data.wind import to_components, to_speed_and_direction
from stonet.errors import DataError, UsageError

NAMES = ("wind_speed", "wind_direction")


def winds(speed: np.ndarray, direction: np.ndarray) -> Field:
    """A field of speed, temperature and direction."""
    field = small_field(len(speed), speed.shape[1])
    values = np.stack([speed, field.values[..., 0], direction], axis=-1).astype(np.float32)
    channels, units = ("wind_speed", "t2m", "wind_direction"), ("m s-1", "degC", "degree")
    return replace(field, values=values, mask=None, channels=channels, units=units)


def random_winds() -> Field:
    rng = np.random.default_rng(0)
    return winds(rng.gamma(2, 2, size=(60, 20)), rng.uniform(0, 360, size=(60, 20)))


@pytest.mark.parametrize(
    ("direction", "east", "north"),
    [(0, 0, -2), (90, -2, 0), (180, 0, 2), (270, 2, 0), (360, 0, -2)],
)
def test_wind_from_the_four_directions(direction: float, east: float, north: float) -> None:
    made = to_components(winds(np.full((1, 4), 2.0), np.full((1, 4), direction)), *NAMES)
    assert made.channels == ("eastward_wind", "t2m", "northward_wind")
    assert made.units == ("m s-1", "degC", "m s-1")
    np.testing.assert_allclose(made.values[..., 0], east, atol=1e-6)
    np.testing.assert_allclose(made.values[..., 2], north, atol=1e-6)


def test_there_and_back() -> None:
    field = random_winds()
    back = to_speed_and_direction(to_components(field, *NAMES))
    assert back.channels == ("wind_speed", "t2m", "wind_from_direction")
    np.testing.assert_allclose(back.values[..., :2], field.values[..., :2], rtol=1e-5)
    turned = (back.values[..., 2] - field.values[..., 2] + 180) % 360 - 180
    assert np.abs(turned).max() < 1e-3


def test_calm_needs_no_direction_and_a_missing_one_is_missing() -> None:
    direction = np.full((1, 4), np.nan)
    values = to_components(winds(np.array([[0.0, 1.0, 0.0, 2.0]]), direction), *NAMES).values
    np.testing.assert_array_equal(values[0, :, 0], [0, np.nan, 0, np.nan])


def test_a_direction_towards_has_the_other_sign() -> None:
    field = random_winds()
    about = {"wind_direction": {"standard_name": "sea_water_velocity_to_direction"}}
    towards = to_components(replace(field, channel_attrs=about), *NAMES)
    coming = to_components(field, *NAMES)
    np.testing.assert_allclose(towards.values[..., ::2], -coming.values[..., ::2], atol=1e-6)


def test_files_are_read_with_components_which_are_averaged(tmp_path: Path) -> None:
    field = random_winds()
    field.to_csv(tmp_path / "wind.csv")
    expected = to_components(field, *NAMES)
    read = stonet.read(tmp_path / "wind.csv", wind_components=NAMES)
    assert read.channels == expected.channels and read.units == expected.units
    np.testing.assert_allclose(read.values, expected.values, atol=1e-5)
    opposite = winds(np.ones((4, 20)), np.array([[90.0], [270.0]] * 2) * np.ones(20))
    opposite.to_csv(tmp_path / "opposite.csv")
    options = {"wind_components": NAMES, "variables": ("eastward_wind", "northward_wind")}
    mean = stonet.read(tmp_path / "opposite.csv", every="2h", **options)
    assert mean.channels == options["variables"] and mean.step == 2 * HOUR
    assert np.abs(mean.values[1, :, 0]).max() < 0.51  # not the mean of 90 and 270 degrees
    with pytest.raises(UsageError, match="wind_gust"):
        stonet.read(tmp_path / "wind.csv", wind_components=("wind_gust", "wind_direction"))


def test_a_direction_is_refused_with_that_advice() -> None:
    with pytest.raises(DataError, match="--wind-components SPEED,wind_direction"):
        stonet.STONet(preset="tiny").fit(random_winds())
