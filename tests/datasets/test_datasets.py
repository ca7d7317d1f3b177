"""Data sets by name: facts of the real files, and the paper's files in their exact formats."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import xarray as xr
from helpers.paths import ROOT

from stonet.config import load_config
from stonet.data.field import Dataset, Field
from stonet.data.geometry import Points
from stonet.data.splits import chronological
from stonet.datasets import DATASETS, cards, find, open_dataset, solar, weatherbench
from stonet.datasets.era5_bhutan import relative_humidity
from stonet.errors import DataError, UsageError
from stonet.training.task import Task

HOUR = 3_600_000_000_000
PAGE = ROOT / "docs" / "reference" / "datasets.md"


@pytest.fixture
def real(data, monkeypatch):
    """Opens a data set from its real files."""

    def open_real(name, **options):
        card = DATASETS[name].card
        monkeypatch.setenv("STONET_DATA", str(data(card.folder_name).parent))
        return open_dataset(name, **options)

    return open_real


# Cards


def test_the_page_shows_every_card():
    page = PAGE.read_text(encoding="utf-8")
    for card in cards():
        shown = f"## {card.name}\n" if card.name == "wave" else card.markdown()
        assert shown in page, f"docs/reference/datasets.md needs:\n\n{shown}"


def test_cards_are_complete():
    for name, entry in DATASETS.items():
        assert entry.card.name == name
        assert all(text and "|" not in text for text in entry.card.rows().values())
        assert entry.card.page.startswith("https://") or not entry.card.files
        for file in entry.card.files:
            assert file.url is None or (file.url.startswith("https://") and file.sha256)


def test_an_unknown_option_is_named():
    with pytest.raises(UsageError, match="Did you mean 'variables'"):
        open_dataset("era5-bhutan", variable="t2m")
    with pytest.raises(UsageError, match="some of: t2m, r2m, u10, v10, ssrd"):
        open_dataset("era5-bhutan", variables="tcc")


# Real files


def test_era5_uk(real):
    field = real("era5-uk").episodes[0]
    assert field.quantity == (("t2m", "K"),) and field.values.shape == (744, 1617, 1)
    assert field.observed.all() and "Copernicus" in field.attrs["licence"]


def test_era5_bhutan_computes_humidity(data):
    code = """if True:
        import json
        from stonet.datasets import open_dataset
        data = open_dataset("era5-bhutan", variables="r2m, t2m")
        field = data.episodes[0]
        humidity, temperature = field.values[..., 0], field.values[..., 1]
        hours = [v.mean(1).reshape(-1, 24).mean(0).argmax() for v in (humidity, temperature)]
        print(json.dumps([field.quantity, field.values.shape, float(humidity.min()),
                          float(humidity.max()), [int(h) for h in hours], data.unseen]))"""
    folder = data("era5-bhutan").parent
    environment = {"STONET_DATA": str(folder), "PATH": ""}  # without type checks, which are slow
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    quantity, shape, low, high, hours, unseen = json.loads(done.stdout)
    assert quantity == [["r2m", "%"], ["t2m", "K"]] and shape == [17544, 135, 2]
    assert low >= 2 and high <= 100
    assert hours[1] == 8 and hours[0] in (21, 22, 23, 0)  # humid before dawn, UTC+6
    assert unseen == []


def test_pv_rhode_island(real):
    field = real("pv-rhode-island").episodes[0]
    assert field.quantity == (("cf_profile", "1"),) and field.values.shape == (17520, 100, 1)
    assert field.values.min() == 0 and field.values.max() < 1
    day = field.values[..., 0].mean(1).reshape(365, 48).mean(0)
    noon = (day * np.arange(48)).sum() / day.sum() / 2
    assert abs(noon - (12 + 71.5 / 15)) < 0.2  # solar noon at 71.5 degrees west, in UTC
    assert np.isfinite(field.sites["altitude"]).all()


def test_noaa_daily(real):
    field = real("noaa-daily").episodes[0]
    assert dict(field.quantity) == {"Tmax": "degF", "Tmin": "degF", "TDP": "degF", "Precip": "inch"}
    assert field.values.shape == (1461, 137, 4)
    missing = 1 - field.observed.mean((0, 1))
    assert np.round(100 * missing, 1).tolist() == [2.0, 2.5, 27.7, 3.5]
    both = field.observed[..., 0] & field.observed[..., 1]
    assert (field.values[..., 0] >= field.values[..., 1])[both].mean() > 0.999


def test_inmet_brazil(real):
    field = real("inmet-brazil", variables="air_temperature, wind_speed").episodes[0]
    assert field.quantity == (("air_temperature", "degC"), ("wind_speed", "m s-1"))
    assert field.values.shape == (17544, 332, 2) and "quoted" in field.attrs["licence"]
    missing = 1 - field.observed.mean((0, 1))
    assert np.round(100 * missing, 1).tolist() == [3.1, 10.1]
    assert (np.diff(field.times) == HOUR).all() and np.isfinite(field.sites["altitude"]).all()
    sums, count = field.values[..., 0].sum(1, where=field.observed[..., 0]), field.observed[..., 0]
    hours = (sums.reshape(-1, 24).sum(0) / count.sum(1).reshape(-1, 24).sum(0)).argmax()
    assert hours in (17, 18)  # the afternoon at 48 degrees west, in UTC


def test_relative_humidity_agrees_with_tables():
    def humidity(celsius, dew):
        kelvin = [np.array([[t + 273.15]], dtype=np.float32) for t in (celsius, dew)]
        return float(relative_humidity(*kelvin)[0, 0])

    assert humidity(20, 20) == 100
    assert humidity(20, 9.26) == pytest.approx(50, abs=0.1)  # a textbook example
    assert humidity(0, -10) == pytest.approx(47.0, abs=0.3)  # e(-10) = 2.865, e(0) = 6.108 hPa
    assert humidity(10, 10.1) == 100


# Solar


def alabama(data):
    """The file names of the 137 plants."""
    lines = data("nrel-solar/alabama_137_plants.csv").read_text().splitlines()
    return [line.split(",")[-1] for line in lines[1:]]


def table(number, rows=6):
    """The first rows of a plant's table, in NREL's format."""
    lines = [f"01/01/06 00:{5 * row:02d},{number + row / 10}" for row in range(rows)]
    return "\n".join(["LocalTime,Power(MW)", *lines, ""])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("STONET_DATA", str(tmp_path))
    monkeypatch.setenv("STONET_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("how", ["folder", "compressed", "archive"])
def test_all_plants_of_alabama_are_read(data, folder, how):
    names = alabama(data)
    if how == "archive":
        with zipfile.ZipFile(folder / "al-pv-2006.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for number, name in enumerate(names):
                archive.writestr(f"al-pv-2006/{name}", table(number))
                archive.writestr(f"al-pv-2006/{name.replace('Actual', 'DA')}", "a forecast")
    else:
        (folder / "solar").mkdir()
        for number, name in enumerate(names):
            if how == "folder":
                (folder / "solar" / name).write_text(table(number))
            else:
                packed = gzip.compress(table(number).encode())
                (folder / "solar" / f"{name}.gz").write_bytes(packed)
    assert not find("solar").missing
    opened = open_dataset("solar")
    field = opened.episodes[0]
    assert len(opened.seen) == 108 and len(opened.unseen) == 29
    assert (opened.past, opened.horizon, opened.stride) == (12, 12, 12)
    assert field.quantity == (("power", "MW"),) and field.values.shape == (6, 137, 1)
    assert field.times[0] == np.datetime64("2006-01-01T06:00", "ns").astype(np.int64)
    by_name = dict(zip(field.points.names, range(137), strict=True))
    for number, name in enumerate(names):
        _, lat, lon, _, kind, capacity, *_ = name.split("_")
        node = by_name[f"{lat}_{lon}_{kind}_{capacity}"]
        assert field.values[3, node, 0] == np.float32(number + 0.3)
        assert field.sites["lat"][node] == float(lat) and field.sites["lon"][node] == float(lon)
        assert field.sites["capacity"][node] == float(capacity.removesuffix("MW"))
    assert len(np.unique(field.points.coordinates, axis=0)) == 134  # three pairs coincide


def test_positions_are_scaled_into_the_unit_box_by_one_factor(data):
    positions = np.array([[float(n.split("_")[2]), float(n.split("_")[1])] for n in alabama(data)])
    box = solar.unit_box(positions)
    assert box.min(0).tolist() == [0, 0] and box.max() == 1
    ratio = np.diff(box, axis=0)[0] / np.diff(positions, axis=0)[0]
    assert np.allclose(ratio, 1 / np.ptp(positions[:, 1]))


def test_four_real_plants_are_read(data):
    paths = [p for p in data("nrel-solar").iterdir() if p.name.startswith("Actual")]
    field = solar.read_plants(solar._parse_names((path, path.name) for path in paths))
    assert field.values.shape == (105120, 4, 1) and (np.diff(field.times) == HOUR // 12).all()
    day = field.values[..., 0].mean(1).reshape(365, 288).mean(0)
    noon = (day * np.arange(288)).sum() / day.sum() / 12  # centre of the daily power
    assert abs(noon - 12) < 0.5 and (day[:48] == 0).all()  # local hours
    assert (field.values[:, :, 0].max(0) <= field.sites["capacity"]).all()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"Time,Power\n1,2\n", "its first line is"),
        (b"LocalTime,Power(MW)\n01/01/06 00:00,x\n", "cannot be read"),
        (b"LocalTime,Power(MW)\n01/01/06 00:00,1\n01/01/06 00:10,1\n", "five minutes apart"),
        (b"LocalTime,Power(MW)\n31/01/06 00:00,1\n", "a time cannot be read"),
        (b"\0" * (2**24 + 5), "more than 16777216 bytes"),
    ],
)
def test_an_invalid_table_is_named(tmp_path, content, words):
    path = tmp_path / "Actual_30.45_-88.25_2006_UPV_70MW_5_Min.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words) as error:
        solar.read_plants(solar._parse_names(iter([(path, path.name)])))
    assert path.name in str(error.value)


def test_an_incomplete_set_of_plants_is_refused(data, folder):
    (folder / "solar").mkdir()
    for name in alabama(data)[:5]:
        (folder / "solar" / name).write_text(table(0))
    with pytest.raises(DataError, match="has 5 plants; expected 137"):
        open_dataset("solar")
    assert find("solar").missing
    (folder / "al-pv-2006.zip").write_bytes(b"PK nonsense")
    for path in (folder / "solar").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="not a readable ZIP archive"):
        open_dataset("solar")


# WeatherBench

LAT = np.arange(-87.1875, 90, 5.625)
LON = np.arange(0, 360, 5.625)
VARIABLES = {
    "temperature": {"2m_temperature": ("t2m", "K")},
    "humidity": {"relative_humidity": ("r", "%")},
    "cloud": {"total_cloud_cover": ("tcc", "(0 - 1)")},
    "wind": {"10m_u_component_of_wind": ("u10", "m s**-1"),
             "10m_v_component_of_wind": ("v10", "m s**-1")},
}  # fmt: skip


def weather(folder, name, year=2010, hours=75):
    """The first hours of a year in WeatherBench's format; values encode time, point, variable."""
    time = np.datetime64(f"{year}-01-01", "ns") + np.arange(hours) * np.timedelta64(1, "h")
    code = np.arange(hours)[:, None, None] * 1e4 + np.arange(2048).reshape(32, 64)
    for number, (long, (short, unit)) in enumerate(VARIABLES[name].items()):
        values, dims = (code + 1e6 * number).astype(np.float32), ("time", "lat", "lon")
        coords = {"time": time, "lat": LAT, "lon": LON}
        if name == "humidity":
            levels = [50, 100, 150, 200, 250, 300, 400, 500, 600, 700, 850, 925, 1000]
            values = np.stack([0 * values] * 12 + [values], axis=1)
            dims, coords = ("time", "level", "lat", "lon"), coords | {"level": levels}
        path = folder / "weatherbench" / long / f"{long}_{year}_5.625deg.nc"
        path.parent.mkdir(parents=True, exist_ok=True)
        variable = (dims, values, {"units": unit})
        xr.Dataset({short: variable}, coords).to_netcdf(path, engine="h5netcdf")


@pytest.fixture
def one_year(monkeypatch, folder):
    """Opens a data set as if it consisted of 2010 only."""

    def open_year(name, **options):
        entry = DATASETS[name]
        files = tuple(file for file in entry.card.files if "_2010_" in file.name)
        monkeypatch.setitem(vars(entry.card), "files", files)
        return open_dataset(name, **options)

    return open_year


@pytest.mark.parametrize("name", VARIABLES)
def test_the_weather_of_the_paper_is_read(folder, one_year, name):
    weather(folder, name)
    opened = one_year(name)
    field = opened.episodes[0]
    names = {"humidity": ("r",), "wind": ("u10", "v10")}
    assert field.channels == names.get(name, tuple(v[0] for v in VARIABLES[name].values()))
    assert field.units == tuple(v[1] for v in VARIABLES[name].values())
    assert (opened.past, opened.horizon, opened.stride, opened.unseen) == (12, 12, 24, ())
    assert len(field.times) == 48  # of 75 hours: two complete days, as the paper counts
    assert np.array_equal(field.points.coordinates[:65, 0], np.repeat(LAT[:2], 64)[:65])
    assert np.array_equal(field.points.coordinates[:64, 1], LON)
    for channel in range(len(field.channels)):
        expected = np.arange(48)[:, None] * 1e4 + np.arange(2048) + 1e6 * channel
        assert np.array_equal(field.values[..., channel], expected)


def test_unseen_points_lie_between_those_of_the_coarser_grid(folder, one_year):
    weather(folder, "temperature", hours=48)
    opened = one_year("temperature", inductive=True)
    seen, unseen = opened.points.take(opened.seen), opened.points.coordinates[list(opened.unseen)]
    assert len(opened.points) == 1024 and opened.unseen == tuple(range(512, 1024))
    assert np.array_equal(np.unique(seen.coordinates[:, 0]), LAT[::2])
    assert np.array_equal(np.unique(seen.coordinates[:, 1]), LON[::2])
    positions = {tuple(row) for row in np.concatenate([seen.coordinates, unseen])}
    assert len(positions) == 1024
    row, column = np.divmod(opened.episodes[0].values[0, :, 0].astype(int), 64)
    assert np.array_equal(opened.points.coordinates, np.stack([LAT[row], LON[column]], axis=1))


def test_a_gap_between_years_is_refused(folder, one_year):
    weather(folder, "cloud")
    path = folder / "weatherbench" / "total_cloud_cover" / "total_cloud_cover_2010_5.625deg.nc"
    with xr.open_dataset(path, engine="h5netcdf") as opened:
        cut = opened.load().isel(time=[0, 1, 2, 5, 6])
    cut.to_netcdf(path, engine="h5netcdf")
    with pytest.raises(DataError, match=r"after 2010-01-01T02:00:00Z the next hour is missing"):
        one_year("cloud")


def test_nine_years_give_the_windows_of_the_paper():
    hours = (np.datetime64("2019-01-01") - np.datetime64("2010-01-01")).astype(int) * 24
    assert hours == 78888 and weatherbench.usable_frames(int(hours)) == 3286 * 24
    parts = [stop - start for start, stop in chronological((0.7, 0.1, 0.2), 3286)]
    assert parts == [2300, 329, 657]
    frames = weatherbench.usable_frames(int(hours))
    values = np.random.default_rng(0).random((frames, 2, 1)).astype(np.float32)
    field = Field(values, np.arange(frames) * HOUR, Points(np.array([[0.0, 0], [1, 1]]), "sphere"))
    task = Task.of(Dataset((field,), past=12, horizon=12, stride=24), load_config())
    assert [len(task.windows(part, stride=task.stride)) for part in task.parts] == [2300, 329, 657]
