"""Healthy data get no warning; each planted mistake is found, with its station and its time."""

from __future__ import annotations

import io
import json
import re
import tracemalloc
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from rich.console import Console

from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import DataError, UsageError
from stonet.plotting.figures import png
from stonet.quality import statistics
from stonet.quality.checks import LEVELS, Exam, Finding
from stonet.quality.figure import ROWS, quality_figure, shared_rows
from stonet.quality.report import Report, check, findings_table

HOUR = 3600 * 10**9
START = int(np.datetime64("2024-03-01", "ns").astype(np.int64))
FRAMES, STATIONS = 600, 40
CHANNELS = {"t2m": "degC", "rh": "%", "precipitation": "mm", "pressure": "hPa"}


def healthy(frames: int = FRAMES, stations: int = STATIONS, seed: int = 0) -> Field:
    """Weather of central Europe: days, fronts and noise; a few values missing; some rain."""
    rng = np.random.default_rng(seed)
    places = np.stack([rng.uniform(46, 54, stations), rng.uniform(5, 15, stations)], axis=1)
    t = np.arange(frames)[:, None]
    front = np.sin(2 * np.pi * t / 130 + places[:, 1] / 5)
    temperature = 10 + 5 * np.sin(2 * np.pi * t / 24) + 4 * front - (places[:, 0] - 50)
    humidity = np.clip(75 - 15 * np.sin(2 * np.pi * t / 24) + 18 * front, 5, 100)
    rain = np.maximum(0, rng.gamma(0.3, 3.0, (frames, stations)) - 2.0) * (front > 0)
    pressure = 1013 - 12 * front
    noise = rng.normal(size=(4, frames, stations)) * np.array([0.5, 1.0, 0.0, 0.5])[:, None, None]
    fields = np.stack([temperature, humidity, rain, pressure]) + noise
    fields[1] = np.minimum(fields[1], 100)
    values = np.moveaxis(fields, 0, 2).round(2).astype(np.float32)
    values[rng.uniform(size=values.shape) < 0.01] = np.nan
    names = tuple(f"S{i:02d}" for i in range(stations))
    return Field(
        values,
        START + HOUR * np.arange(frames),
        Points(places, "sphere", names),
        tuple(CHANNELS),
        units=tuple(CHANNELS.values()),
    )


def known(field: Field) -> np.ndarray:
    return field.values.copy()


def changed(change) -> Field:
    """The healthy field with its values changed in place: change(values)."""
    field = healthy()
    values = known(field)
    change(values)
    return replace(field, values=values, mask=None)


def moved(node: int, place: tuple[float, float]) -> Field:
    field = healthy()
    places = field.points.coordinates.copy()
    places[node] = place
    return replace(field, points=Points(places, "sphere", field.points.names))


def put(value: float, where: tuple) -> Field:
    def change(values: np.ndarray) -> None:
        values[where] = value

    return changed(change)


def convert(node: int, channel: int, factor: float, offset: float = 0.0) -> Field:
    def change(values: np.ndarray) -> None:
        values[:, node, channel] = values[:, node, channel] * factor + offset

    return changed(change)


def retimed(times: np.ndarray) -> Field:
    return replace(healthy(), times=times)


def alarms(report: Report) -> list[Finding]:
    return [f for f in report.findings if f.level in ("error", "warning")]


HOURS = START + HOUR * np.arange(FRAMES)
JITTER = np.random.default_rng(0).integers(-HOUR // 10, HOUR // 10, FRAMES)
CLIMB = np.cumsum(np.random.default_rng(0).integers(HOUR // 5, 5 * HOUR, FRAMES)) + START


def healthy_with_units(**units: str) -> Field:
    return replace(healthy(), units=tuple((CHANNELS | units).values()))


def with_gap(length: int) -> Field:
    return retimed(HOURS + HOUR * length * (np.arange(FRAMES) >= 200))


def apart() -> Field:
    """Every station reports once in four frames, at a minute of its own."""
    field = healthy()
    mask = (np.arange(FRAMES)[:, None] + np.arange(STATIONS)) % 4 == 0
    return replace(field, mask=field.observed & mask[..., None])


def box(field: Field, **limits: float) -> Field:
    return replace(field, attrs={f"geospatial_{k}": v for k, v in limits.items()})


PLANTED = {  # name: (field, level, what and where must match)
    "gap": (with_gap(10), "note", r"1 gap .*10 frames .*2024-03-09 07:00 to 2024-03-09 18:00"),
    "long gap": (with_gap(100), "warning", r"100 frames .*14\.3%.*2024-03-09 07:00 to 2024-03-13"),
    "jitter": (retimed(HOURS + JITTER), "note", r"steps differ from .* by up to 1\d\.\d min"),
    "no step": (retimed(CLIMB), "warning", r"no regular step.*2024-03-01"),
    "silent": (put(np.nan, (slice(100, 500), 3, 0)), "warning",
               r"1 station lacks more than 50%.*'S03' 67% of t2m, silent 2024-03-05 03:00 to "
               r"2024-03-21 20:00 \(16\.7 d\)"),
    "late": (put(np.nan, (slice(0, 120), 5)), "note", r"1 record starts late.*'S05' 2024-03-06"),
    "early": (put(np.nan, (slice(480, None), 6)), "note", r"1 record ends early.*'S06' 2024-03-20"),
    "dead channel": (put(np.nan, (slice(None), 9, 1)), "note", r"never reports rh.*'S09'"),
    "apart": (apart(), "warning", r"Stations report at different times.*about every 4 h"),
    "constant": (put(12.5, (slice(None), 4, 0)), "warning", r"same t2m all.*'S04' 12\.5 degC"),
    "constant channel": (put(1000, (..., 3)), "warning", r"pressure never changes.*1000 hPa"),
    "stuck": (put(7.25, (slice(300, 340), 8, 0)), "warning",
              r"1 sensor of t2m sticks.*'S08' 7\.25 degC, 2024-03-13 12:00 to 2024-03-15 03:00"),
    "outlier": (put(451.0, (222, 17, 0)), "warning",
                r"1 value of t2m is far from all others.*'S17' 451 degC at 2024-03-10 06:00"),
    "sentinel": (put(-999.0, (slice(50, 60), 11, 0)), "warning",
                 r"10 values of t2m are -999.*1 station, first 'S11', 2024-03-03 02:00.*g=-999"),
    "many sentinels": (put(999.9, (slice(None, None, 3), slice(0, 20), 1)), "warning",
                       r"4000 values of rh are 999\.9.*20 stations, first 'S00', 2024-03-01"),
    "lone sentinel": (put(9999.0, (70, 2, 3)), "warning", r"'S02' 9999 hPa at 2024-03-03 22:00"),
    "said K": (healthy_with_units(t2m="K"), "warning", r"t2m is said .* K, .*look like degC"),
    "said degC": (changed(lambda v: np.add(v[..., 0], 273.15, out=v[..., 0])), "warning",
                  r"t2m is said .* degC, .*look like K"),
    "no unit": (healthy_with_units(t2m="1"), "note", r"t2m has no unit; .*look like degC"),
    "said Pa": (healthy_with_units(pressure="Pa"), "warning", r"pressure .* Pa, .*like hPa"),
    "said hPa": (changed(lambda v: np.multiply(v[..., 3], 100, out=v[..., 3])), "warning",
                 r"pressure is said .* hPa, .*look like Pa"),
    "said %": (changed(lambda v: np.multiply(v[..., 1], 0.01, out=v[..., 1])), "warning",
               r"rh is said .* %, .*look like fractions of 1"),
    "humid": (put(112.0, (33, 21, 1)), "warning", r"rh is above 100 %.*'S21' 112 % at 2024-03-02"),
    "negative rain": (put(-1.5, (40, 30, 2)), "warning",
                      r"precipitation is negative.*'S30' -1\.5 mm at 2024-03-02 16:00"),
    "one in K": (convert(13, 0, 1.0, 273.15), "warning", r"'S13' .* another unit \(K inst"),
    "one in degF": (convert(14, 0, 1.8, 32.0), "warning", r"'S14' .* another unit \(degF inst"),
    "one in Pa": (convert(15, 3, 100.0), "warning", r"'S15' .*pressure.* another unit \(Pa inst"),
    "swapped": (moved(7, (9.0, 50.0)), "warning", r"'S07' .*latitude and longitude exch.*9, 50"),
    "west": (moved(8, (50.0, -9.0)), "warning", r"'S08' .*longitude with the wrong sign"),
    "south": (moved(9, (-50.0, 9.0)), "warning", r"'S09' .*latitude with the wrong sign"),
    "nowhere": (moved(10, (0.0, 0.0)), "warning", r"1 station lies at 0° N, 0° E.*'S10'"),
    "twins": (moved(12, tuple(healthy().points.coordinates[11])), "warning",
              r"2 stations share a position.*'S11', 'S12'"),
    "isolated": (moved(20, (65.0, 40.0)), "note", r"1 station has no other within \d+.*km.*'S20'"),
    "longitudes": (moved(20, (50.0, 10.0 - 360)), "ok", r"regular"),
    "exchanged": (box(healthy(), lat_min=5, lat_max=15, lon_min=46, lon_max=54), "warning",
                  r"Latitude and longitude seem to be exchanged"),
    "short": (healthy().between(0, 60), "error", r"Too little to train on.*too short"),
    "single": (healthy().between(0, 1), "error", r"There is a single frame.*2024-03-01"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found_and_named(name) -> None:
    field, level, pattern = PLANTED[name]
    report = check(field)
    told = [(f.level, f"{f.what} {f.where} {f.advice}") for f in report.findings]
    assert any(found == level and re.search(pattern, text) for found, text in told), told
    assert len(alarms(report)) == (level in ("warning", "error")), alarms(report)  # and no other


@pytest.mark.parametrize("seed", range(3))
def test_healthy_data_raise_no_alarm(seed) -> None:
    report = check(healthy(seed=seed))
    assert not alarms(report), alarms(report)
    full = replace(healthy(seed=seed), values=healthy(seed=seed)._filled(), mask=None)
    assert not alarms(check(full))
    assert "No value is missing." in [f.what for f in check(full).findings]


def test_many_points_are_said_to_be_many() -> None:
    rng = np.random.default_rng(0)
    points = Points(rng.uniform(-1, 1, (4_500, 2)))
    values = rng.normal(size=(60, 4_500, 1)).astype(np.float32)
    report = check(Field(values, HOUR * np.arange(60), points, calendar=False))
    assert any("4500 points are many for a laptop" in f.what for f in report.findings)
    assert report.facts["mean_degree"] == pytest.approx(12, rel=0.05)


def test_findings_come_the_worst_first_and_as_json() -> None:
    report = check(put(451.0, (222, 17, 0)))
    levels = [LEVELS.index(f.level) for f in report.findings]
    assert levels == sorted(levels)
    content = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert content["findings"][0]["level"] == "warning" == report.worst
    facts = content["facts"]
    assert (facts["frames"], facts["points"], facts["step_seconds"]) == (600, 40, 3600.0)
    assert (facts["start"], facts["stop"]) == ("2024-03-01", "2024-03-25 23:00")
    assert facts["channels"]["t2m"]["max"] == 451.0
    assert facts["channels"]["rh"]["missing_share"] == pytest.approx(0.01, abs=0.003)
    assert sum(facts["degrees"]) == 40 and facts["isolated"] == 0
    assert set(facts["windows"]) == {"train", "validation", "test"}


def test_notes_of_the_reader_are_passed_on() -> None:
    noted = replace(healthy(), notes=("3 values were merged.",))
    assert Finding("note", "3 values were merged.") in check(noted).findings


def test_what_cannot_be_read_is_a_finding_and_the_rest_is_examined(tmp_path) -> None:
    moved(12, tuple(healthy().points.coordinates[11])).to_netcdf(str(tmp_path / "twins.nc"))
    report = check(tmp_path / "twins.nc")
    assert report.findings[0].level == "error" and report.field is not None
    assert re.search(r"'S11' and 'S12'", report.findings[0].what)
    assert report.facts["points"] == STATIONS
    (tmp_path / "broken.nc").write_bytes(b"nothing of the kind")
    broken = check(tmp_path / "broken.nc")
    assert broken.field is None and [f.level for f in broken.findings] == ["error"]
    assert "broken.nc" in broken.findings[0].what
    with pytest.raises(UsageError, match="No file"):
        check(tmp_path / "nowhere.nc")
    with pytest.raises(DataError, match="nothing to draw"):
        quality_figure(broken)


# The one pass


@pytest.mark.parametrize("block", [1, 300, 2**21])
def test_one_pass_is_the_loop_over_every_series_whatever_the_block(monkeypatch, block) -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 3, (90, 5, 2)).astype(np.float32)  # many repeats, many zeros
    values[rng.uniform(size=values.shape) < 0.3] = np.nan
    values[20:50, 1], values[:, 2, 1] = np.nan, np.nan
    field = Field(values, HOUR * np.arange(90), Points(rng.uniform(size=(5, 2))), ("a", "b"))
    monkeypatch.setattr(statistics, "BLOCK", block)
    found = Exam.of(field).statistics
    for n in range(5):
        for c in range(2):
            series = values[:, n, c]
            at = np.flatnonzero(~np.isnan(series)).tolist()
            assert found.count[n, c] == len(at)
            assert (found.first[n, c], found.last[n, c]) == ((at[0], at[-1]) if at else (-1, -1))
            if not at:
                continue
            assert found.zeros[n, c] == (series == 0).sum()
            assert (found.low[n, c], found.high[n, c]) == (np.nanmin(series), np.nanmax(series))
            assert found.low_at[n, c] == np.nanargmin(series)
            gaps = {b: b - a - 1 for a, b in pairwise(at)}
            assert found.outage[n, c] == max(gaps.values())
            assert gaps[int(found.outage_end[n, c])] == found.outage[n, c]
            run, longest = 0, 0
            for t in range(1, 90):
                run = run + 1 if series[t] == series[t - 1] and series[t] != 0 else 0
                longest = max(longest, run)
            assert found.stuck[n, c] == longest
    np.testing.assert_allclose(found.reporting, (~np.isnan(values)).any(2).mean(1), rtol=1e-6)
    np.testing.assert_allclose(found.present.mean(0), (~np.isnan(values)).mean((0, 2)), rtol=1e-5)


def test_findings_do_not_depend_on_the_blocks(monkeypatch) -> None:
    field = put(-999.0, (slice(50, 60), 11, 0))
    whole = check(field).to_json()
    monkeypatch.setattr(statistics, "BLOCK", 1_000)
    assert check(field).to_json() == whole


def test_a_field_larger_than_memory_is_examined_by_parts(monkeypatch, tmp_path) -> None:
    shape = (40_000, 50, 2)
    values = np.memmap(tmp_path / "values", np.float32, "w+", shape=shape)
    mask = np.memmap(tmp_path / "mask", bool, "w+", shape=shape)
    values[:] = np.random.default_rng(0).normal(size=(40_000, 1, 1))
    mask[:] = True
    model = healthy(stations=50).take(np.arange(50))
    parts = {"values": values, "mask": mask, "times": START + HOUR * np.arange(shape[0])}
    parts |= {"channels": ("a", "b"), "units": ("1", "1")}
    field = Field.trusted(**(vars(model) | parts))
    monkeypatch.setattr(statistics, "BLOCK", 2**15)
    monkeypatch.setattr(statistics, "SAMPLE", 2**15)
    tracemalloc.start()
    check(field)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < values.nbytes / 2


# For people


def test_the_table_shows_every_finding_and_no_name_is_taken_for_markup() -> None:
    field = put(451.0, (222, 17, 0))
    names = tuple(f"[red]{name}[/red]" for name in field.points.names)
    report = check(replace(field, points=Points(field.points.coordinates, "sphere", names)))
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(findings_table(report))
    text = re.sub(r"[│\s]+", " ", console.export_text())
    assert "[red]S17[/red]" in text and "451 degC at 2024-03-10 06:00" in text
    assert text.index("warning") < text.index(" ok ")


def test_the_picture_shows_who_reports_when() -> None:
    field = put(np.nan, (slice(300, None), 3))
    report = check(field)
    figure = quality_figure(report, title="a check")
    where, when = figure.axes[:2]
    assert len(where.collections[0].get_offsets()) == STATIONS
    strip = when.images[0].get_array()
    assert strip.shape[0] == STATIONS
    assert strip[-1].mean() == pytest.approx(0.5, abs=0.02)  # the emptiest record comes last
    assert strip[-1, -10:].max() == 0 and strip[0].mean() > 0.97
    assert png(figure).startswith(b"\x89PNG")


@pytest.mark.parametrize("nodes", [ROWS - 1, ROWS, ROWS + 1, 10 * ROWS + 7])
def test_rows_are_shared_without_losing_any(nodes) -> None:
    rows = np.random.default_rng(0).uniform(size=(nodes, 4)).astype(np.float32)
    shared = shared_rows(rows)
    assert len(shared) == min(nodes, ROWS)
    np.testing.assert_allclose(shared.mean(0), rows.mean(0), atol=0.02)
    np.testing.assert_array_equal(shared_rows(np.ones_like(rows)), 1)


# Real data


def test_real_observations_are_examined_as_they_are(data) -> None:
    report = check(data("noaa-daily/stations.csv.gz"))
    told = {f.what: f for f in report.findings}
    assert (report.facts["frames"], report.facts["points"]) == (1461, 137)
    assert [f.what for f in alarms(report)] == ["4 stations lack more than 50%."]
    assert "'noaa-3951' 98% of Tmax" in told["4 stations lack more than 50%."].where
    assert report.facts["channels"]["TDP"]["missing_share"] == pytest.approx(0.277, abs=0.005)


@pytest.mark.parametrize("folder", ["nrel-pv-rhode-island", "era5-uk"])
def test_modelled_data_are_healthy(data, folder) -> None:
    pytest.importorskip("eccodes" if folder == "era5-uk" else "h5py")
    report = check(data(folder))
    assert not alarms(report), alarms(report)
