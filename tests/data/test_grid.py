"""Grids: recognised, written with their own dims, and read again as the same points."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from helpers.contracts import perturbed_model, small_field

from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.data.grid import Grid
from stonet.inference.forecast import forecast, forecast_to_file
from stonet.inference.places import region_grid
from stonet.io.read import read
from stonet.io.sites import parse_sites


def grid_points(kind: str = "sphere", rows: int = 5, columns: int = 7) -> Points:
    lat, lon = 40 + 0.25 * np.arange(rows), 350 + 0.5 * np.arange(columns)
    pairs = np.stack(np.meshgrid(lat[::-1], lon, indexing="ij"), axis=-1).reshape(-1, 2)
    return Points(pairs if kind == "sphere" else pairs[:, ::-1] - 300, kind)


def grid_field(points: Points) -> Field:
    values = np.random.default_rng(0).normal(size=(6, len(points), 2)).astype(np.float32)
    times = 3600 * 10**9 * np.arange(6)
    return Field(values, times, points, ("t", "q"), units=("K", "1"))


@pytest.mark.parametrize("kind", ["sphere", "plane"])
@pytest.mark.parametrize("gaps", [False, True])
def test_a_grid_is_written_as_a_grid_and_read_as_the_same_points(tmp_path, kind, gaps) -> None:
    points = grid_points(kind)
    if gaps:
        points = points.take(np.setdiff1d(np.arange(35), [0, 3, 4, 20]))
    field = grid_field(points)
    for name in ("grid.nc", "grid.zarr"):
        (field.to_netcdf if name.endswith("nc") else field.to_zarr)(str(tmp_path / name))
        opener = xr.open_dataset if name.endswith("nc") else xr.open_zarr
        with opener(tmp_path / name) as file:
            dims = ("lat", "lon") if kind == "sphere" else ("y", "x")
            assert file["t"].dims == ("time", *dims) and file["t"].shape == (6, 5, 7)
            assert "featureType" not in file.attrs and "station" not in file.variables
            for i, (first, second) in enumerate(points.coordinates.tolist()):
                where = dict(
                    zip(dims, (first, second) if kind == "sphere" else (second, first), strict=True)
                )
                np.testing.assert_array_equal(file["t"].sel(where), field.values[:, i, 0])
            assert int(file["t"].isnull().sum()) == 6 * (35 - len(points))
        again = read(tmp_path / name, variables="t,q")
        order, mine = (np.lexsort(p.coordinates.T) for p in (again.points, points))
        places = again.points.coordinates[order]
        np.testing.assert_array_equal(places, points.coordinates[mine])
        np.testing.assert_array_equal(again.values[:, order], field.values[:, mine])


def test_stations_are_no_grid() -> None:
    generator = np.random.default_rng(0)
    assert Grid.of(Points(generator.uniform(0, 50, (40, 2)))) is None
    assert Grid.of(Points(generator.integers(0, 30, (6, 2)).astype(float))) is None
    square = np.array([[0, 0], [0, 1], [1, 0], [1, 1.0]])
    assert Grid.of(Points(square)) is not None
    assert Grid.of(Points(square, names=("a", "b", "c", "d"))) is None


def test_a_forecast_on_a_grid_is_that_at_its_points(tmp_path) -> None:
    trained, field = perturbed_model(), small_field("sphere", channels=2)
    points = region_grid(10.0, field.points)
    low, high = field.points.coordinates.min(0), field.points.coordinates.max(0)
    assert (points.coordinates[:, 0] % 10 == 0).all()
    assert points.coordinates[:, 0].min() <= low[0] and points.coordinates[:, 0].max() >= high[0]
    for chosen in (points, points.take(np.r_[3:9, 11 : len(points)])):
        expected = forecast(trained, field, chosen)
        for name in ("f.nc", "f.zarr"):
            forecast_to_file(trained, field, tmp_path / name, chosen)
            with xr.open_dataset(tmp_path / name, decode_timedelta=True) as file:
                grid = Grid.of(chosen)
                assert grid is not None and file["u0"].dims == ("time", "lat", "lon")
                values = file["u0"].values.reshape(len(expected.times), -1)[:, grid.cells]
                np.testing.assert_allclose(values, expected.values[..., 0], atol=2e-4)
                assert file["support"].dims == ("lat", "lon")


def test_the_region_of_a_grid_may_cross_the_date_line() -> None:
    stations = Points(np.array([[-17.0, 178.3], [-18.0, -179.2], [-16.4, 177.1]]), "sphere")
    lon = region_grid(0.5, stations).coordinates[:, 1]
    assert lon.min() == 177.0 and lon.max() == 181.0
    world = region_grid(30.0, parse_sites(["grid:30"], "sphere"))
    assert len(np.unique(world.coordinates[:, 1] % 360)) == 12
