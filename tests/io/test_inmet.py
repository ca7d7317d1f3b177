"""INMET's years as published: the tables, their archives, and archives that mean harm."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from stonet.errors import DataError, UsageError
from stonet.io import archive, inmet_file
from stonet.io.read import read
from stonet.system.progress import reporting_to

HOUR = 3600 * 10**9
NEW = (
    "Data;Hora UTC;PRECIPITAÇÃO TOTAL, HORÁRIO (mm);RADIACAO GLOBAL (Kj/m²);"
    "TEMPERATURA DO AR - BULBO SECO, HORARIA (°C);TEMPERATURA MÁXIMA NA HORA ANT. (AUT) (°C);"
    "VENTO, DIREÇÃO HORARIA (gr) (° (gr));VENTO, RAJADA MAXIMA (m/s);"
    "VENTO, VELOCIDADE HORARIA (m/s);"
)
OLD = NEW.replace("Data;Hora UTC", "DATA (YYYY-MM-DD);HORA (UTC)")
CHANNELS = (
    *("precipitation_amount", "downwelling_shortwave_energy", "air_temperature"),
    *("air_temperature_max", "wind_from_direction", "wind_speed_of_gust", "wind_speed"),
)
PLACES = {"A001": (-15.789, -47.926, 1160.96), "A101": (-3.103, -60.016, 61.25)}


def values(hours: int, seed: int) -> np.ndarray:
    """Numbers with one decimal, a tenth of them missing."""
    rng = np.random.default_rng(seed)
    drawn = rng.uniform(0, 30, (hours, len(CHANNELS))).round(1)
    drawn[rng.random(drawn.shape) < 0.1] = np.nan
    drawn[0] = 0.8
    return drawn


def table(code: str, rows: np.ndarray, year: int = 2024, old: bool = False, **place) -> bytes:
    """A file of a station in the form of today, or in that of the years before 2019."""
    lat, lon, altitude = place.get("at", PLACES[code])
    start = np.datetime64(f"{year}-01-01T00", "h")
    lines = [
        f"{'REGIÃO' if old else 'REGIAO'}:;CO", "UF:;DF", "ESTACAO:;BRASILIA",
        f"CODIGO (WMO):;{code}", f"LATITUDE:;{lat}", f"LONGITUDE:;{lon}",
        f"ALTITUDE:;{altitude}", "DATA DE FUNDACAO:;07/05/00",
    ]  # fmt: skip
    lines = [line.replace(".", ",") for line in lines] + [OLD if old else NEW]
    for number, row in enumerate(rows):
        day, hour = str(start + number).split("T")
        missing = "-9999" if old else ""
        cells = [missing if np.isnan(x) else f"{x:.1f}".replace(".", ",") for x in row]
        cells = [cell.removeprefix("0") if cell[:2] == "0," else cell for cell in cells]  # ,8
        when = [day, f"{hour}:00"] if old else [day.replace("-", "/"), f"{hour}00 UTC"]
        lines.append(";".join([*when, *cells, ""]))
    return "\r\n".join([*lines, ""]).encode("latin-1")


NAME = "INMET_CO_DF_{code}_BRASILIA_01-01-{year}_A_31-12-{year}.CSV"


def pack(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return path


@pytest.fixture(scope="module")
def truth() -> dict[str, np.ndarray]:
    return {code: values(50 + number, number) for number, code in enumerate(PLACES)}


@pytest.fixture
def year(tmp_path, truth) -> Path:
    """An archive of two stations, in a folder of its own, as INMET packed the older years."""
    members = {f"2024/{NAME.format(code=c, year=2024)}": table(c, v) for c, v in truth.items()}
    return pack(tmp_path / "2024.zip", members | {"2024/": b"", "2024/README.txt": b"text"})


# The values


@pytest.mark.parametrize("how", ["archive", "folder", "single files", "old"])
def test_what_was_written_is_read(tmp_path, truth, year, how):
    source: Path | list[Path] = year
    if how != "archive":
        folder = tmp_path / "files"
        folder.mkdir()
        for code, rows in truth.items():
            content = table(code, rows, old=how == "old")
            (folder / NAME.format(code=code, year=2024)).write_bytes(content)
        source = sorted(folder.iterdir()) if how == "single files" else folder
    field = read(source, variables=CHANNELS)
    assert field.points.names == ("A001", "A101") and field.values.shape == (51, 2, 7)
    assert field.times[0] == np.datetime64("2024-01-01", "ns").astype(np.int64)
    assert (np.diff(field.times) == HOUR).all()
    for node, (code, rows) in enumerate(truth.items()):
        np.testing.assert_array_equal(field.values[: len(rows), node], rows.astype(np.float32))
        assert tuple(field.points.coordinates[node]) == PLACES[code][:2]
        assert field.sites["altitude"][node] == PLACES[code][2]
    assert not field.observed[50:, 0].any()  # its record ends an hour earlier
    assert "quoted" in field.attrs["licence"]


def test_real_files_agree_with_the_packed_data_set(data):
    samples = sorted(data("inmet-brazil/samples").iterdir())
    field = read(samples[0], stop="2024-02")
    packed = read(data("inmet-brazil/inmet-2023-2024.nc"), variables=field.channels,
                  start="2024-01", stop="2024-02").sel(station="A001")  # fmt: skip
    assert field.quantity == packed.quantity and np.array_equal(field.times, packed.times)
    assert np.array_equal(field.observed, packed.observed)
    close = np.array([0.005] * 6 + [0.21, 0.005])  # the radiation is packed in steps of 0.4
    assert (np.nanmax(np.abs(field.values - packed.values), (0, 1)) <= close).all()
    assert np.allclose(field.points.coordinates, packed.points.coordinates, atol=1e-4)


def test_years_are_joined(tmp_path, truth):
    for name, rows, old in ((2018, truth["A001"], True), (2019, truth["A101"], False)):
        content = table("A001", rows, year=name, old=old)
        pack(tmp_path / f"{name}.zip", {NAME.format(code="A001", year=name): content})
    field = read(tmp_path, variables="air_temperature")
    assert len(field.times) == 365 * 24 + 51 and field.values.shape[1:] == (1, 1)
    later = truth["A101"][:, 2].astype(np.float32)
    np.testing.assert_array_equal(field.values[-51:, 0, 0], later)
    assert not field.observed[50:-51].any()


# Selection


def test_the_usual_columns_are_read_and_others_by_name(year):
    usual = read(year)
    assert set(usual.channels) <= set(inmet_file.USUAL)
    assert any("wind_speed_of_gust" in note for note in usual.notes)
    assert read(year, variables="wind_speed_of_gust, wind_speed").units == ("m s-1", "m s-1")
    with pytest.raises(DataError, match="wind_speed_of_gust") as error:
        read(year, variables="gust")
    assert "'gust'" in str(error.value)
    renamed = read(year, rename={"air_temperature": "t2m"}, variables="t2m")
    assert renamed.quantity == (("t2m", "degC"),)


def test_a_region_and_a_period_are_selected(year, truth):
    field = read(year, bbox=(-65, -10, -55, 0), start="2024-01-02", variables="wind_speed")
    assert field.points.names == ("A101",) and len(field.times) == 27
    np.testing.assert_array_equal(field.values[:, 0, 0], truth["A101"][24:, 6].astype(np.float32))
    for nothing in ({"bbox": (0, 0, 1, 1)}, {"start": "2030"}):
        with pytest.raises(UsageError):
            read(year, **nothing)


def test_one_bar_runs_from_begin_to_end(year):
    seen: list[tuple[int, int]] = []
    with reporting_to(lambda done, total, *_: seen.append((done, total))):
        read(year, variables="wind_speed")
    files = [pair for pair in seen if pair[1] == 4]
    assert files == sorted(files) and files[0] == (0, 4) and files[-1] == (4, 4)


# Contradictions


def test_a_station_that_moved_is_at_its_newest_place(tmp_path, truth):
    lat, lon, altitude = PLACES["A001"]
    places = {2020: (lat + 0.01, lon, altitude), 2021: (lat, lon, altitude)}
    for name, at in places.items():
        content = table("A001", truth["A001"], year=name, at=at)
        (tmp_path / NAME.format(code="A001", year=name)).write_bytes(content)
    field = read(tmp_path, variables="wind_speed")
    assert tuple(field.points.coordinates[0]) == (lat, lon)
    assert any("1.1 km" in note for note in field.notes)
    far = table("A001", truth["A001"], year=2019, at=(lat + 5, lon, altitude))
    (tmp_path / NAME.format(code="A001", year=2019)).write_bytes(far)
    with pytest.raises(DataError, match="A001 is 556 km"):
        read(tmp_path)


def test_different_values_of_one_hour_are_refused_or_chosen(tmp_path, truth):
    rows = truth["A001"]
    changed = rows.copy()
    changed[5, 6] = 99.0
    for name, content in (("a.csv", rows), ("b.csv", changed), ("c.csv", rows[:9])):
        (tmp_path / name).write_bytes(table("A001", content))
    with pytest.raises(DataError, match=r"A001 at 2024-01-01T05"):
        read(tmp_path, variables="wind_speed")
    first, last = (
        read([tmp_path / "a.csv", tmp_path / "b.csv"], variables="wind_speed", duplicates=which)
        for which in ("first", "last")
    )
    assert last.values[5, 0, 0] == 99.0 != first.values[5, 0, 0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.replace(b"LATITUDE", b"LAT"), "not a complete station file"),
        (lambda c: c.replace(b"CODIGO (WMO):;A001", b"CODIGO (WMO):;"), "not a complete"),
        (lambda c: c[:300], "not a complete"),
        (lambda c: c.replace(b"2024/01/02;0000", b"2024/13/02;0000"), "a time cannot be read"),
        (lambda c: c.replace(b"2024/01/02;0000", b"2024/01/02;0030"), "not full hours"),
        (lambda c: c.replace(b"0000 UTC;,8;", b"0000 UTC;x;", 1), "a value cannot be read"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, truth, change, words):
    path = tmp_path / NAME.format(code="A001", year=2024)
    path.write_bytes(change(table("A001", truth["A001"])))
    with pytest.raises(DataError, match=words) as error:
        read(path)
    assert path.name in str(error.value)


# Archives that mean harm


@pytest.mark.parametrize(
    "name", ["../x.csv", "a/../../x.csv", "/etc/x.csv", "C:/x.csv", "..\\x.csv", "\\\\host\\x.csv"]
)
def test_names_that_lead_outside_are_refused(tmp_path, truth, name):
    path = pack(tmp_path / "2024.zip", {"good.csv": table("A001", truth["A001"]), name: b"x"})
    with pytest.raises(DataError, match="outside its folder"):
        read(path)
    assert not list(tmp_path.rglob("x.csv"))


def test_a_bomb_is_refused_before_it_bursts(tmp_path, truth):
    start = table("A001", truth["A001"])
    path = pack(tmp_path / "2024.zip", {"bomb.csv": start + b"\0" * 2**24})
    with pytest.raises(DataError, match="packed"):
        read(path)


def test_a_member_may_not_be_larger_than_any_table(tmp_path, truth, monkeypatch):
    monkeypatch.setattr(inmet_file, "MAX_BYTES", 2000)
    with pytest.raises(DataError, match="more than 2000 bytes"):
        read(pack(tmp_path / "2024.zip", {"a.csv": table("A001", truth["A001"])}))


def test_a_declared_size_is_not_believed(tmp_path, truth, monkeypatch):
    path = pack(tmp_path / "2024.zip", {"a.csv": table("A001", truth["A001"])})
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = (100).to_bytes(4, "little")  # the uncompressed size
    path.write_bytes(content)
    with pytest.raises(DataError):
        read(path)


def test_archives_with_too_many_or_no_tables_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MAX_MEMBERS", 3)
    with pytest.raises(DataError, match="has 4 members"):
        read(pack(tmp_path / "many.zip", {f"{n}.csv": b"" for n in range(4)}))
    with pytest.raises(DataError, match="holds no table"):
        read(pack(tmp_path / "none.zip", {"a.nc": b""}))
    with pytest.raises(DataError, match="not a station file of INMET"):
        read(pack(tmp_path / "other.zip", {"a.csv": b"station,time\n1,2\n"}))


def test_a_damaged_archive_is_named(tmp_path, year):
    cut = tmp_path / "cut.zip"
    cut.write_bytes(year.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"cut.zip' is not a readable ZIP"):
        read(cut)
    broken = bytearray(year.read_bytes())
    broken[200:260] = bytes(60)
    cut.write_bytes(broken)
    with pytest.raises(DataError, match=r"cut.zip"):
        read(cut)
