"""Place, local time and sun of a point."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers.contracts import small_points

from stonet.data.batch import Batch
from stonet.data.durations import SECOND
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.data.scaling import Scaler
from stonet.data.solar_position import sun_direction
from stonet.data.time_spec import TimeSpec
from stonet.data.windows import cut
from stonet.models.point_inputs import (
    HARMONICS,
    PlaceAxes,
    harmonics,
    harmonics_width,
    local_time,
    make_sites,
    sun_at_leads,
    sun_width,
)

HOUR = 3600 * SECOND
SUNNY = TimeSpec(step=HOUR, past=3, horizon=4, calendar=True, yearly=True, sunny=True)
START = int(np.datetime64("2024-06-20T03:00", "ns").astype(np.int64))


def a_batch(time_spec: TimeSpec, points: Points) -> Batch:
    times = START + HOUR * np.arange(40)
    field = Field(np.zeros((40, len(points), 1), np.float32), times, points, ("u",))
    return cut((field,), Scaler.identity(1), time_spec).inputs(np.array([0, 5, 21]))


@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_axes_have_unit_variance_and_no_correlation(kind: str) -> None:
    points = small_points(kind, 80)
    axes = PlaceAxes(points)
    place = axes(points)
    assert place.shape == (80, axes.width)
    torch.testing.assert_close(place.mean(0), torch.zeros(axes.width).double())
    covariance = place.T @ place / 80
    torch.testing.assert_close(covariance, torch.eye(axes.width).double())


@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_axes_do_not_depend_on_the_order_of_the_points(kind: str) -> None:
    points = small_points(kind, 50)
    order = np.random.default_rng(0).permutation(50)
    one, other = PlaceAxes(points)(points), PlaceAxes(points.take(order))(points)
    torch.testing.assert_close(one, other)


def test_axes_do_not_depend_on_the_unit_and_narrow_ones_are_left_out() -> None:
    plane = np.random.default_rng(0).uniform(size=(40, 2))
    one, other = (PlaceAxes(Points(p))(Points(p)) for p in (plane, 1e3 * plane + 7e4))
    torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    line = Points(plane * [1.0, 0.01])
    assert PlaceAxes(line).width == 1
    single = Points(plane[:1])
    assert PlaceAxes(single)(single).isfinite().all()


def test_beyond_the_training_points_the_place_is_held() -> None:
    points = small_points("plane", 30)
    axes = PlaceAxes(points)
    far = axes(Points(np.array([[1e3, -1e3], [-1e3, 1e3]])))
    inside = axes(points)
    assert (far <= inside.amax(0)).all() and (far >= inside.amin(0)).all()


def test_harmonics_are_sines_and_cosines_of_whole_periods() -> None:
    phase = torch.tensor([[0.1, 0.7]], dtype=torch.float64)
    expected = [
        wave(2 * math.pi * m * p)
        for wave in (math.sin, math.cos)
        for p in (0.1, 0.7)
        for m in range(1, HARMONICS + 1)
    ]
    torch.testing.assert_close(harmonics(phase)[0], torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(harmonics(phase + 3), harmonics(phase))
    assert harmonics(phase).shape[-1] == harmonics_width(SUNNY) == 4 * HARMONICS


def test_fifteen_degrees_east_is_one_hour_later() -> None:
    """In local mean solar time; the day of the year is the same everywhere."""
    points = Points(np.array([[50.0, 0.0], [50.0, 15.0], [-20.0, -345.0], [50.0, 345.0]]), "sphere")
    batch = a_batch(SUNNY, points)
    sites = make_sites(points, PlaceAxes(points))
    found = local_time(batch, sites, SUNNY)
    for hours, point in ((0, 0), (1, 1), (1, 2), (-1, 3)):
        moved = batch.issue_time.double() + torch.tensor([0.0, hours / 24])
        torch.testing.assert_close(found[point], harmonics(moved), rtol=0, atol=1e-5)


def test_on_a_plane_the_time_is_the_same_everywhere() -> None:
    points, clock = small_points("plane", 5), TimeSpec(step=HOUR, past=3, horizon=4, calendar=True)
    batch = a_batch(clock, points)
    found = local_time(batch, make_sites(points, PlaceAxes(points)), clock)
    expected = harmonics(batch.issue_time.double()).expand(5, -1, -1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert sun_at_leads(batch, make_sites(points, PlaceAxes(points)), clock) is None
    assert sun_width(clock) == 0


def test_the_sun_is_that_of_every_lead() -> None:
    """The sine of its elevation, 0 at night."""
    points = small_points("sphere", 9)
    batch = a_batch(SUNNY, points)
    found = sun_at_leads(batch, make_sites(points, PlaceAxes(points)), SUNNY)
    assert found is not None and found.shape == (9, 3, sun_width(SUNNY))
    issue = START + HOUR * (np.array([0, 5, 21]) + SUNNY.past - 1)
    ahead = sun_direction(issue[:, None] + HOUR * np.arange(SUNNY.horizon + 1))
    expected = np.einsum("pm,blm->pbl", points.embedded, ahead).clip(min=0)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert (expected == 0).any() and (expected > 0.5).any()
