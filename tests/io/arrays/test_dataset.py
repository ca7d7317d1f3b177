"""xarray data sets of any shape and names give the same points, times and values."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from stonet.config import ReadConfig
from stonet.data.field import Field
from stonet.errors import DataError, UsageError
from stonet.io.arrays import dataset as dataset_module
from stonet.io.arrays.variables import decode_values
from stonet.io.read import open_sources, read

HOUR = 3600 * 10**9
START = np.datetime64("2024-01-01", "ns")


def grid(dims=("time", "lat", "lon"), **coords) -> xr.Dataset:
    values = np.random.default_rng(0).normal(size=(3, 4, 5))
    values[1, 2, 3] = np.nan
    given_coords = {
        "time": START + np.arange(3) * np.timedelta64(6, "h"),
        "lat": np.linspace(-60, 60, 4),
        "lon": np.linspace(0, 288, 5),
    } | coords
    t2m = xr.DataArray(values, given_coords, ("time", "lat", "lon"), attrs={"units": "K"})
    return xr.Dataset({"t2m": t2m.transpose(*dims)})


def as_table(field: Field) -> dict:
    """{(lat, lon): [value or None through time]} of the first channel."""
    return {
        (lat, lon): [
            float(v) if m else None
            for v, m in zip(field.values[:, i, 0], field.observed[:, i, 0], strict=True)
        ]
        for i, (_, lat, lon) in enumerate(field.points)
    }


def loop_over_cells(dataset: xr.Dataset, name: str, lat: str, lon: str, time: str) -> dict:
    """The same table, by a loop over cells."""
    table = {}
    values = dataset[name].transpose(lat, lon, time).values.astype(np.float32)
    order = np.argsort(dataset[time].values)
    for i, north in enumerate(dataset[lat].values):
        for j, east in enumerate(dataset[lon].values):
            cell = [None if np.isnan(v) else float(v) for v in values[i, j, order]]
            if any(v is not None for v in cell):
                table[float(north), float(east)] = cell
    return table


@st.composite
def grids(draw):
    times, rows, columns = (draw(st.integers(1, 4)) for _ in range(3))
    lat = np.array(draw(st.lists(st.integers(-89, 89), min_size=rows, max_size=rows, unique=True)))
    lat = np.sort(lat)[:: draw(st.sampled_from([1, -1]))] + 0.25
    east = draw(st.sampled_from([0, -180]))
    lon = east + np.sort(draw(st.permutations(range(0, 360, 20)))[:columns]) + 0.5
    seed = draw(st.integers(0, 10**6))
    generator = np.random.default_rng(seed)
    values = generator.normal(size=(times, rows, columns))
    values[generator.random(values.shape) < draw(st.sampled_from([0.0, 0.3]))] = np.nan
    values[0, 0, 0] = 1.0
    order = draw(st.permutations(range(times)))
    names = draw(st.sampled_from([("time", "lat", "lon"), ("t", "phi", "lambda"), ("T", "y", "x")]))
    attrs = [{"standard_name": "time"}, {"units": "degrees_north"}, {"units": "degree_E"}]
    coords = {
        n: (n, c, a)
        for n, c, a in zip(names, (START + np.array(order) * HOUR, lat, lon), attrs, strict=True)
    }
    dataset = xr.Dataset({"u": (names, values)}, coords)
    return dataset.transpose(*draw(st.permutations(names))), names


def check_grid(example) -> None:
    dataset, (time, lat, lon) = example
    assert as_table(read(dataset)) == loop_over_cells(dataset, "u", lat, lon, time)


@settings(max_examples=150)
@given(grids())
def test_any_grid_equals_the_loop_over_its_cells(example):
    check_grid(example)


@pytest.mark.long
@settings(max_examples=5000)
@given(grids())
def test_many_grids_equal_the_loop_over_their_cells(example):
    check_grid(example)


@settings(max_examples=60)
@given(grids(), st.integers(-180, 180), st.integers(1, 340), st.integers(-90, 80))
def test_a_bbox_selects_across_any_meridian(example, west, width, south):
    """Reading with a bbox equals selecting from the complete file."""
    dataset, (_, lat, lon) = example
    inside = (dataset[lat] >= south) & ((dataset[lon] - west) % 360 <= width)
    options = {"bbox": (west, south, west + width, 90)}
    expected = dataset.where(inside)
    if not np.isfinite(expected.u).any():
        with pytest.raises(DataError, match=r"is empty|every value is missing"):
            read(dataset, **options)
        return
    assert as_table(read(dataset, **options)) == as_table(read(expected))


def test_a_curvilinear_grid_keeps_its_two_dimensional_coordinates():
    lat, lon = np.meshgrid(np.linspace(40, 50, 3), np.linspace(5, 9, 2), indexing="ij")
    lat = lat + 0.1 * lon
    dataset = xr.Dataset(
        {"u": (("time", "y", "x"), np.arange(12.0).reshape(2, 3, 2))},
        {"time": [0.0, 0.5], "latitude": (("y", "x"), lat), "longitude": (("y", "x"), lon)},
    )
    projected = dataset.assign_coords(x=[0.0, 1e3], y=[0.0, 1e3, 2e3])
    for field in (read(dataset), read(projected), read(projected.transpose("x", "time", "y"))):
        order = np.lexsort(field.points.coordinates.T)
        rows = np.lexsort((lon.ravel(), lat.ravel())[::-1])
        expected = np.stack([lat.ravel(), lon.ravel()], 1)[rows]
        assert np.array_equal(field.points.coordinates[order], expected)
        np.testing.assert_array_equal(
            field.values[:, order, 0], np.arange(12.0).reshape(2, 6)[:, rows]
        )
        assert np.array_equal(field.times, [0, 500_000_000])
    plane = read(projected, geometry="plane")
    assert plane.points.kind == "plane"
    assert plane.points.coordinates.max() == 2e3
    lat[0, 1] = np.nan  # a cell outside the map
    assert len(read(dataset).points) == 5


def test_scalar_coordinates_are_one_point():
    field = read(grid().isel(lat=1, lon=3))
    assert list(field.points) == [("0", -20.0, 216.0)]
    np.testing.assert_array_equal(
        field.values[:, 0, 0], grid().t2m[:, 1, 3].values.astype(np.float32)
    )
    named = grid().isel(lat=1, lon=3).assign_coords(station="Bern")
    assert read(named).points.names == ("Bern",)
    assert np.array_equal(read(grid().isel(time=1)).times, [(START + 6 * HOUR).astype(int)])


def test_a_data_array_is_a_channel():
    assert read(grid().t2m).channels == ("t2m",)
    assert read(grid().t2m.rename(None)).channels == ("u",)


# Levels


def levels() -> xr.Dataset:
    dataset = grid()
    height = xr.DataArray([500, 850.0], dims="level", name="level")
    dataset["r"] = dataset.t2m * height.assign_coords(level=height)
    return dataset.expand_dims(number=[0])


def test_levels_become_channels():
    field = read(levels().assign(flag=lambda d: d.t2m.astype(str)))
    assert field.channels == ("t2m", "r_500", "r_850")
    for name, factor in (("r_500", 500), ("r_850", 850)):
        values = field.values[..., field.channels.index(name)]
        expected = (levels().t2m.values[0] * factor).reshape(3, 20)
        np.testing.assert_array_equal(values, expected.astype(np.float32))
    assert any("flag" in note for note in field.notes)


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        ("r_850", ("r_850",)),
        ("r", ("r_500", "r_850")),
        ("r_850,t2m,r", ("r_850", "t2m", "r_500")),
    ],
)
def test_levels_are_selected_by_name(requested, expected):
    complete = read(levels())
    field = read(levels(), variables=requested)
    assert field.channels == expected
    order = [complete.channels.index(name) for name in expected]
    np.testing.assert_array_equal(field.values, complete.values[..., order])


def test_too_many_channels_are_refused():
    dataset = grid().expand_dims(level=np.arange(65))
    with pytest.raises(UsageError, match=r"65 channels \(t2m_0, t2m_1, .*at most 64.*--variables"):
        read(dataset)
    assert read(dataset, variables=["t2m_64"]).channels == ("t2m_64",)
    with pytest.raises(UsageError, match="No variable 'u10' in the data; there are: t2m"):
        read(grid(), variables=["u10"])


def curvilinear() -> xr.Dataset:
    lat, lon = np.meshgrid(np.linspace(-60, 60, 4), np.linspace(0, 288, 5), indexing="ij")
    renamed = grid().drop_vars(["lat", "lon"]).rename(lat="row", lon="column")
    dims = ("row", "column")
    return renamed.assign_coords(lat=(dims, lat + 0.1 * lon / 288), lon=(dims, lon))


@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (grid(), {}),
        (grid(), {"points": 3}),
        (grid(), {"bbox": (70, -30, 150, 30)}),
        (grid(), {"bbox": (-80, -30, 80, 30)}),  # both ends of the longitudes
        (grid(), {"bbox": (200, -30, 100, 70)}),
        (grid(("lon", "lat", "time")), {"bbox": (-80, -30, 80, 30)}),  # both ends of the first dim
        (curvilinear(), {"bbox": (70, -30, 150, 30)}),
        (levels(), {"variables": "r_850"}),
        (levels().isel(level=[0, 1, 1]).assign_coords(level=[1, 2, 3]), {"variables": "r_1,r_3"}),
        (grid().isel(lat=1, lon=3), {}),
    ],
)
def test_cells_counts_all_values_that_are_read_for_a_frame(dataset, options, monkeypatch):
    """Including values that are not selected; the size of blocks depends on it."""
    sizes = []
    monkeypatch.setattr(
        dataset_module,
        "decode_values",
        lambda array: sizes.append(array.size) or decode_values(array),
    )
    config = ReadConfig(**options)
    (source,) = open_sources(dataset, config)
    source.select(config).frames(1, 2)
    assert sum(sizes) == source.select(config).cells > 0
    sizes.clear()
    read(dataset, **options)
    assert sum(sizes) == 3 * source.cells


# Times


@pytest.mark.parametrize(
    ("times", "units"),
    [
        ([0.0, 1.5, 3.0], "h"),
        ([0, 90, 180], "min"),
        ([0, 90, 180], "minutes"),
        ([0.0, 5400.0, 10800.0], None),
        (np.array([0, 90, 180], dtype="timedelta64[m]"), None),
    ],
)
def test_numbers_count_in_their_units(times, units):
    dataset = grid().isel(lat=0, drop=True).rename(lon="x").assign_coords(y=("x", np.zeros(5)))
    dataset = dataset.assign_coords(time=("time", times, {"units": units} if units else {}))
    field = read(dataset)
    assert np.array_equal(field.times, np.arange(3) * HOUR * 3 // 2)
    assert not field.calendar
    assert field.points.kind == "plane"


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
@pytest.mark.parametrize("unit", ["days", "hours"])
def test_undecoded_dates_are_decoded_without_rounding_errors(dtype, unit):
    steps = (np.arange(3) * (0.25 if unit == "days" else 6)).astype(dtype)
    if dtype == "int32" and unit == "days":
        steps = np.arange(3, dtype=dtype)
    attrs = {"units": f"{unit} since 2024-01-01", "calendar": "standard"}
    field = read(grid().assign_coords(time=("time", steps, attrs)))
    hours = steps.astype(float) * (24 if unit == "days" else 1)
    assert np.array_equal(field.times, START.astype(int) + (hours * HOUR).astype(int))
    third = np.arange(3) / 24 * 8 + 45000  # thirds of a day since long ago
    attrs = {"units": "days since 1900-01-01"}
    field = read(grid().assign_coords(time=("time", third, attrs)))
    assert (field.times % (HOUR // 3600) == 0).all()
    assert (np.diff(field.times) == 8 * HOUR).all()


def test_times_in_single_precision_are_rounded_to_what_they_resolve():
    """Hours of a year as float32 days are off by a second at most, whatever their epoch."""
    hours = np.arange(365 * 24)
    for start in ("2019-01-01", "1950-1-1 00:00:00", "2019-01-01T00:00:00Z"):
        attrs = {"units": f"days since {start}"}
        times = ("time", (hours / 24).astype(np.float32), attrs)
        single = (
            grid().isel(time=0, drop=True).expand_dims(time=len(hours)).assign_coords(time=times)
        )
        first = np.datetime64("1950-01-01" if "1950" in start else "2019-01-01", "ns").astype(int)
        assert np.array_equal(read(single).times, first + hours * HOUR)


class Date:
    """A stand-in for cftime's dates."""

    def __init__(self, text: str, calendar: str) -> None:
        self.text, self.calendar = text, calendar

    def isoformat(self) -> str:
        return self.text


def test_dates_of_other_calendars_are_refused():
    days = ["2024-02-28T00:00:00", "2024-02-29T06:00:00", "2024-03-01T00:00:00"]
    standard = np.array([Date(day, "proleptic_gregorian") for day in days], dtype=object)
    field = read(grid().assign_coords(time=("time", standard)))
    assert np.array_equal(field.times, np.array(days, "M8[ns]").astype(int))
    other = np.array([Date(day, "noleap") for day in days], dtype=object)
    with pytest.raises(DataError, match=r"calendar 'noleap'.*convert_calendar"):
        read(grid().assign_coords(time=("time", other)))


def forecasts(inits: int, every: int, leads: int) -> xr.Dataset:
    """Forecasts whose values are their valid times in hours."""
    init = START + np.arange(inits) * every * np.timedelta64(1, "h")
    lead = np.arange(1, leads + 1) * np.timedelta64(1, "h")
    hours = np.add.outer(np.arange(inits) * every, np.arange(1, leads + 1)).astype(float)
    values = np.broadcast_to(hours[:, None, :, None], (inits, 2, leads, 3))
    return xr.Dataset(
        {"u": (("init_time", "lat", "lead_time", "lon"), values)},
        {"init_time": init, "lead_time": lead, "lat": [0.0, 1.0], "lon": [0.0, 1.0, 2.0]},
    )


@pytest.mark.parametrize(
    "names",
    [("init_time", "lead_time"), ("time", "step"), ("forecast_reference_time", "forecast_period")],
)
def test_consecutive_forecasts_are_one_series(names):
    dataset = forecasts(4, 6, 6).rename(init_time=names[0], lead_time=names[1])
    field = read(dataset)
    hours = (field.times - START.astype(int)) / HOUR
    assert np.array_equal(hours, np.arange(1, 25))
    assert (field.values[..., 0] == hours[:, None]).all()
    assert field.reference_time is None
    late = read(dataset, start="2024-01-01T09:00", stop="2024-01-01T16:00")
    np.testing.assert_array_equal(late.values[:, 0, 0], np.arange(9, 17))
    with pytest.raises(DataError, match=r"4 forecasts of 9 leads overlap: 9 times"):
        read(forecasts(4, 6, 9))


def test_one_forecast_keeps_its_issue_time():
    one = forecasts(1, 6, 9)
    for dataset in (one, one.isel(init_time=0)):
        field = read(dataset)
        assert field.reference_time == START.astype(int)
        assert np.array_equal(field.times, START.astype(int) + np.arange(1, 10) * HOUR)
    hours = one.assign_coords(lead_time=("lead_time", np.arange(1, 10), {"units": "hours"}))
    assert np.array_equal(read(hours).times, field.times)


def test_valid_time_has_priority_over_an_issue_time():
    dataset = grid()
    shifted = dataset.assign_coords(valid_time=dataset.time + np.timedelta64(1, "h"))
    assert np.array_equal(read(shifted).times, read(dataset).times + HOUR)


# Refused data sets


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.drop_vars("time"), r"No time coordinate among \['lat', 'lon', 't2m'\]"),
        (lambda d: d.drop_vars("lat"), "expected lat and lon .degrees. for points on the earth"),
        (lambda d: d.isel(lat=slice(0, 0)), "No numeric variable over"),
        (lambda d: d.assign_coords(time=["a", "b", "c"]), "'time' has type .*expected dates"),
        (lambda d: d.assign_coords(lat=list("abcd")), "'lat' has type .*expected numbers"),
        (lambda d: d.assign_coords(time=[0.0, 1.0, np.nan]), "expected finite"),
        (lambda d: d.assign_coords(time=[0.0, 1.0, 1e12]), "of at most 292 years"),
        (
            lambda d: d.assign_coords(time=("time", [0, 1, 2], {"units": "fortnights"})),
            "Time is in 'fortnights'",
        ),
        (
            lambda d: d.assign_coords(time=np.array(["2000", "NaT", "2002"], "datetime64[ns]")),
            "Some times are missing",
        ),
        (
            lambda d: d.assign_coords(lat=("time", np.zeros(3))).isel(lat=0),
            "expected fixed points",
        ),
        (lambda d: d.assign_coords(lat=d.lat + 200), "latitude must be in"),
        (lambda d: d.rename(t2m="lsm").isel(time=0, drop=True), "No time coordinate"),
    ],
)
def test_unsuitable_data_sets_are_refused(change, message):
    with pytest.raises(DataError, match=rf"the xarray object'.*{message}"):
        read(change(grid()))
