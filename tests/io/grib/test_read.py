"""GRIB messages written by ecCodes are read back; real files have the expected content."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys

import numpy as np
import pytest
from helpers.grib_files import GRID, as_ecc, eccodes, message

from stonet.config import ReadConfig
from stonet.errors import DataError
from stonet.io.grib import read as grib_read
from stonet.io.grib.message_index import BufferedFile, index_fields
from stonet.io.grib.read import open_grib
from stonet.io.read import read

HOUR = 3_600_000_000_000
UK = "era5-uk/era5-2mt-2019-03-uk.grib"


def hour_of_peak(field, channel):
    """The hour (UTC) at which the channel is largest on average."""
    mean = field.values[..., field.channels.index(channel)].mean(1)
    hours = field.times // HOUR % 24
    return int(np.argmax([mean[hours == hour].mean() for hour in range(24)]))


@pytest.fixture
def file(tmp_path):
    def write(*messages):
        path = tmp_path / "x.grib"
        path.write_bytes(b"".join(messages))
        return path

    return write


# Real files


def test_the_file_of_the_united_kingdom_is_read(data):
    field = read(data(UK))
    lat, lon = field.points.coordinates.T
    assert field.quantity == (("t2m", "K"),) and field.values.shape == (744, 1617, 1)
    assert len(np.unique(lat)) == 33 and len(np.unique(lon)) == 49
    assert (lat.min(), lat.max(), lon.min(), lon.max()) == (50, 58, -10, 2)
    assert (np.diff(field.times) == HOUR).all() and field.observed.all()
    assert field.times[0] == np.datetime64("2019-03-01", "ns").astype(np.int64)
    assert field.values.min() > 255 and field.values.max() < 300
    assert hour_of_peak(field, "t2m") == 15
    assert field.attrs["institution"] == "ecmf" and field.reference_time is None


def test_ten_files_of_bhutan_are_merged(data):
    code = """if True:
        import sys, numpy as np
        from stonet.io.read import read
        f = read(sys.argv[1])
        print(*f.quantity, sep=";")
        print(*np.unique(np.diff(f.times)), len(f.times))
        print(f.values.shape[1], f.observed.all())
        for name in ("ssrd", "t2m"):
            mean = f.values[..., f.channels.index(name)].mean(1)
            print(mean.reshape(-1, 24).mean(0).argmax())"""
    command = [
        sys.executable,
        "-c",
        code,
        str(data("era5-bhutan")),
    ]  # a process without type checks, which are slow
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "('ssrd', 'J m**-2')" in lines[0] and lines[0].count(";") == 4
    assert lines[1:3] == [f"{HOUR} 17544", "135 True"]
    assert lines[3:] == ["6", "8"]  # hours, UTC; noon is at 6


def test_real_values_are_those_of_eccodes(data):
    path = data("era5-bhutan/surface_solar_radiation_downwards_2019.grib")
    (source,) = open_grib(path, ReadConfig())
    octets, size = path.read_bytes(), 378
    for number in (0, 7, 4000, 8759):
        expected = as_ecc(octets[number * size : (number + 1) * size])
        assert np.array_equal(source.frames(number, number + 1)[0, :, 0], expected)


# Values in every packing


def frames(path):
    """All values of a file with one variable."""
    (source,) = open_grib(path, ReadConfig())
    return source.frames(0, len(source.times))[..., 0]


@pytest.mark.parametrize("edition", [1, 2])
@pytest.mark.parametrize("gaps", [0, 2])
def test_simple_packing_is_unpacked_as_by_eccodes(file, monkeypatch, edition, gaps):
    monkeypatch.setattr(grib_read, "decode", None)  # must not be needed
    values = np.random.default_rng(edition).normal(-3, 200, 35)
    values[[3, 20][:gaps]] = np.nan
    for bits in (1, 3, 8, 11, 12, 16, 17, 24, 31):
        written = message(values, edition, (7, 5), bitsPerValue=bits)
        actual = frames(file(written, written))
        assert np.array_equal(actual[1], as_ecc(written), equal_nan=True), bits
        assert np.isnan(actual).sum() == 2 * gaps


@pytest.mark.parametrize("edition", [1, 2])
@pytest.mark.parametrize("constant", [0.0, -12.5])
def test_a_constant_field_has_no_bits(file, edition, constant):
    assert (frames(file(message(np.full(12, constant), edition))) == constant).all()


@pytest.mark.parametrize(
    ("edition", "packing"),
    [(1, "grid_second_order"), (1, "grid_ieee")]
    + [(2, f"grid_{name}") for name in ("ccsds", "jpeg", "complex", "ieee")]
    + [(2, "grid_complex_spatial_differencing")],
)
def test_other_packings_are_decoded_by_eccodes(file, edition, packing):
    values = 280 + np.cumsum(np.random.default_rng(0).normal(0, 1, 400))
    written = message(values, edition, (20, 20), packingType=packing)
    plain = message(values + 5, edition, (20, 20), dataTime=100)
    actual = frames(file(plain, written, written))
    assert np.array_equal(actual[0], as_ecc(written)) and np.abs(actual[0] - values).max() < 0.01
    assert np.array_equal(actual[2], as_ecc(plain))


def test_missing_values_of_other_packings_are_missing(file):
    values = GRID.copy()
    values[[0, 5]] = np.nan
    actual = frames(file(message(values, packingType="grid_ccsds")))
    assert np.isnan(actual[0]).tolist() == np.isnan(values).tolist()


def test_a_message_of_edition_1_beyond_8_megabytes_is_read(file):
    values = np.random.default_rng(0).integers(0, 2**16, 2100 * 2100)
    keys = {"iDirectionIncrementInDegrees": 0.01, "jDirectionIncrementInDegrees": 0.01}
    ends = {
        "latitudeOfLastGridPointInDegrees": 31.01,
        "longitudeOfLastGridPointInDegrees": 30.99,
    }
    large = message(values, 1, (2100, 2100), bitsPerValue=16, **keys, **ends)
    assert len(large) > 2**23
    path = file(large, message(GRID, 1, shortName="sp"))
    actual = open_grib(path, ReadConfig())
    assert [source.channels for source in actual] == [("t2m",), ("sp",)]
    assert np.array_equal(actual[0].frames(0, 1)[0, :, 0], as_ecc(large))


# Positions


def coded_positions(field):
    """The latitude and longitude that the values below encode."""
    code = np.rint(field.values[0, :, 0].astype(np.float64))
    return np.stack([code // 1000, code % 1000], axis=1)


@pytest.mark.parametrize("edition", [1, 2])
def test_values_keep_their_positions_in_every_scanning_mode(file, edition):
    flags = ("iScansNegatively", "jScansPositively", "jPointsAreConsecutive")
    for west, north, by_columns, alternating in itertools.product((0, 1), repeat=4):
        lat, lon = np.arange(52, 49, -1), np.arange(10, 14)
        lat, lon = lat[:: -1 if north else 1], lon[:: -1 if west else 1]
        code = 1000 * lat[:, None] + lon
        code = code.T.copy() if by_columns else code
        if alternating:
            code[1::2] = code[1::2, ::-1].copy()
        keys = dict(zip(flags, (west, north, by_columns), strict=True))
        keys |= {"alternativeRowScanning": 1} if alternating else {}
        for axis, ends in (("latitude", lat), ("longitude", lon)):
            for name, end in (("First", ends[0]), ("Last", ends[-1])):
                keys[f"{axis}Of{name}GridPointInDegrees"] = float(end)
        if alternating and edition == 1:
            continue  # edition 2 only
        field = read(file(message(code.ravel(), edition, **keys)))
        assert np.array_equal(coded_positions(field), field.points.coordinates), keys


@pytest.mark.parametrize("mode", [64, 0, 80, 16, 96, 112])
def test_positions_on_a_projection_are_those_of_eccodes(file, mode):
    handle = eccodes.codes_grib_new_from_samples("GRIB2")
    metres, first = ("DxInMetres", "DyInMetres"), (45.0, 8.0)
    settings = {"gridType": "lambert", "Nx": 4, "Ny": 3, "numberOfDataPoints": 12}
    settings |= dict.fromkeys(metres, 50000)
    settings |= dict.fromkeys(("LaDInDegrees", "Latin1InDegrees", "Latin2InDegrees"), 45.0)
    settings |= {"LoVInDegrees": 10.0, "shapeOfTheEarth": 6, "scanningMode": mode}
    settings |= {"latitudeOfFirstGridPointInDegrees": first[0]}
    settings |= {"longitudeOfFirstGridPointInDegrees": first[1], "shortName": "10u"}
    settings |= {"bitsPerValue": 24, "uvRelativeToGrid": 1}
    for key, value in settings.items():
        eccodes.codes_set(handle, key, value)
    eccodes.codes_set_values(handle, np.arange(12.0))
    listed = eccodes.codes_get_array(handle, "latLonValues").reshape(12, 3)
    field = read(file(eccodes.codes_get_message(handle)))
    expected = listed[np.argsort(listed[:, 2])][:, :2]
    assert np.allclose(field.values[0, :, 0], np.arange(12.0), atol=1e-4)
    assert np.abs(field.points.coordinates - expected).max() < 1e-9
    assert "relative to the grid" in field.notes[0]


@pytest.mark.parametrize("sample", ["reduced_gg_pl_32_grib2", "reduced_gg_sfc_grib1"])
def test_a_reduced_grid_has_fewer_points_near_the_poles(file, sample):
    handle = eccodes.codes_grib_new_from_samples(sample)
    count = eccodes.codes_get(handle, "numberOfDataPoints")
    eccodes.codes_set_values(handle, eccodes.codes_get_array(handle, "latitudes"))
    (source,) = open_grib(file(eccodes.codes_get_message(handle)), ReadConfig())
    lat = source.points.coordinates[:, 0]
    assert np.abs(source.frames(0, 1)[0, :, 0] - lat).max() < 0.01
    assert len(lat) == count and (lat > 85).sum() < (np.abs(lat) < 3).sum()


def test_longitudes_keep_their_convention_and_may_be_read_as_a_plane(file):
    path = file(message(GRID, corner=(52.0, 350.0)))
    assert read(path).points.coordinates[:, 1].max() == 353
    flat = read(path, geometry="plane").points
    assert flat.kind == "plane" and flat.coordinates[0].tolist() == [350, 52]


# Names and times


def channels(path):
    return sorted(name for source in open_grib(path, ReadConfig()) for name in source.channels)


def test_a_level_is_named_only_where_there_are_several(file):
    level = {"typeOfLevel": "isobaricInhPa", "shortName": "t"}
    assert channels(file(message(GRID, **level, level=850))) == ["t"]
    both = [message(GRID, **level, level=hpa) for hpa in (850, 500)]
    assert channels(file(*both, message(GRID))) == ["t2m", "t_500", "t_850"]


def test_members_and_unknown_parameters_have_names(file):
    members = [message(GRID, productDefinitionTemplateNumber=1, number=n) for n in (0, 1)]
    assert channels(file(*members)) == ["t2m_m0", "t2m_m1"]
    unknown = {"discipline": 0, "parameterCategory": 192, "parameterNumber": 201}
    assert channels(file(message(GRID, **unknown))) == ["parameter_0_192_201"]


def test_order_and_edition_of_messages_do_not_matter(file):
    hours = [message(GRID + hour, 1 + hour % 2, dataTime=100 * hour) for hour in range(6)]
    straight = read(file(*hours))
    random.Random(1).shuffle(hours)
    shuffled = read(file(*hours))
    assert np.array_equal(straight.times, shuffled.times) and len(straight.times) == 6
    np.testing.assert_array_equal(straight.values, shuffled.values)
    assert np.abs(straight.values[:, 0, 0] - (270 + np.arange(6))).max() < 1e-4


def valid_times(path):
    return [np.datetime64(int(t), "ns").astype("datetime64[m]").item().strftime("%d %H:%M")
            for source in open_grib(path, ReadConfig()) for t in source.times]  # fmt: skip


@pytest.mark.parametrize("edition", [1, 2])
def test_times_are_valid_times_to_the_minute(file, edition):
    accumulated = {"shortName": "ssrd", "stepType": "accum", "dataTime": 1800}
    steps = [message(GRID, edition, **accumulated, stepRange=f"{n - 1}-{n}") for n in (6, 7)]
    assert valid_times(file(*steps)) == ["02 00:00", "02 01:00"]
    (source,) = open_grib(file(*steps), ReadConfig())
    assert source.units == ("J m**-2",)
    assert source.reference_time == source.times[0] - 6 * HOUR
    quarter = message(GRID, edition, dataTime=545, stepUnits="m", step=15)
    assert valid_times(file(quarter)) == ["01 06:00"]
    assert valid_times(file(message(GRID, edition, dataTime=515))) == ["01 05:15"]


def test_steps_in_months_are_refused(file):
    keys = {"indicatorOfUnitOfTimeRange": 3, "forecastTime": 1}
    with pytest.raises(DataError, match="by months or years"):
        read(file(message(GRID, **keys)))


def test_overlapping_forecasts_must_agree(file):
    early, late = message(GRID, step=6), message(GRID + 1, dataTime=600)
    (source,) = open_grib(file(early, late), ReadConfig())
    assert source.times[0] == source.times[1] and source.reference_time is None
    with pytest.raises(DataError, match="given twice and differ"):
        read(file(early, late))
    assert read(file(early, late), duplicates="mean").values[0, 0, 0] == 270.5
    assert len(read(file(early, message(GRID, dataTime=600))).times) == 1


def test_several_fields_of_one_message_are_separated(file):
    gaps = np.where(GRID == 272, np.nan, GRID)
    first, second = message(gaps, shortName="10u"), message(GRID + 50, shortName="10v")
    third = message(gaps + 99, shortName="2d")

    def sections(written, numbers):
        path = file(written)
        with path.open("rb") as opened:
            row = index_fields(BufferedFile(opened, path))[0]
        return b"".join(written[row[2 * n] :][: row[2 * n + 1]] for n in numbers)

    shared = sections(third, [4, 5]) + b"\0\0\0\6\6\xfe" + sections(third, [7])
    message_of_three = first[:-4] + sections(second, range(4, 8)) + shared + b"7777"
    length = len(message_of_three).to_bytes(8, "big")
    message_of_three = message_of_three[:8] + length + message_of_three[16:]
    field = read(file(message_of_three))
    assert field.channels == ("u10", "v10", "d2m")
    expected = np.stack([gaps, GRID + 50, gaps + 99], axis=1)
    actual = np.where(field.observed[0], field.values[0], np.nan)
    assert np.allclose(actual, expected, atol=1e-4, equal_nan=True)
