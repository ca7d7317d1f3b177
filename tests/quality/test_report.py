"""Quality reports: no warning for valid data, errors of reading, findings as JSON and table."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from helpers.weather_stations import (
    HOUR,
    STATIONS,
    assert_found,
    moved,
    valid_field,
    warnings_of,
    with_value,
)
from rich.console import Console

from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import UsageError
from stonet.quality.checks import LEVELS, Finding
from stonet.quality.report import check, findings_table

PLANTED = {  # name: field, level, pattern of the finding
    "isolated": (moved(20, (65.0, 40.0)), "note", r"1 station has no other within \d+.*km.*'S20'"),
    "short": (valid_field().between(0, 60), "error", r"Too little data for training.*too short"),
    "single": (valid_field().between(0, 1), "error", r"There is a single frame.*2024-03-01"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_errors_are_found_with_their_station(name: str) -> None:
    assert_found(*PLANTED[name])


@pytest.mark.parametrize("seed", range(3))
def test_valid_data_give_no_warning(seed) -> None:
    report = check(valid_field(seed=seed))
    assert not warnings_of(report), warnings_of(report)
    full = replace(valid_field(seed=seed), values=valid_field(seed=seed)._filled(), mask=None)
    assert not warnings_of(check(full))
    assert "No value is missing." in [f.what for f in check(full).findings]


def test_many_points_are_noted() -> None:
    rng = np.random.default_rng(0)
    points = Points(rng.uniform(-1, 1, (4_500, 2)))
    values = rng.normal(size=(60, 4_500, 1)).astype(np.float32)
    report = check(Field(values, HOUR * np.arange(60), points, calendar=False))
    assert any("4500 points" in f.what for f in report.findings)
    assert report.facts["mean_degree"] == pytest.approx(12, rel=0.05)


def test_findings_are_sorted_by_level_and_available_as_json() -> None:
    report = check(with_value(451.0, (222, 17, 0)))
    levels = [LEVELS.index(f.level) for f in report.findings]
    assert levels == sorted(levels)
    content = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert content["findings"][0]["level"] == "warning" == report.worst
    facts = content["facts"]
    assert (facts["frames"], facts["points"], facts["step_seconds"]) == (600, 40, 3600.0)
    assert (facts["start"], facts["stop"]) == ("2024-03-01 00:00", "2024-03-25 23:00")
    assert facts["channels"]["t2m"]["max"] == 451.0
    assert facts["channels"]["rh"]["missing_share"] == pytest.approx(0.01, abs=0.003)
    assert sum(facts["degrees"]) == 40 and facts["isolated"] == 0
    assert set(facts["windows"]) == {"train", "validation", "test"}


def test_notes_of_the_reader_are_findings() -> None:
    noted = replace(valid_field(), notes=("3 values were merged.",))
    assert Finding("note", "3 values were merged.") in check(noted).findings


def test_reading_errors_are_findings_and_the_rest_is_checked(tmp_path) -> None:
    moved(12, tuple(valid_field().points.coordinates[11])).to_netcdf(str(tmp_path / "twins.nc"))
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


def test_the_table_shows_every_finding_and_names_are_no_markup() -> None:
    field = with_value(451.0, (222, 17, 0))
    names = tuple(f"[red]{name}[/red]" for name in field.points.names)
    report = check(replace(field, points=Points(field.points.coordinates, "sphere", names)))
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(findings_table(report))
    text = re.sub(r"[│\s]+", " ", console.export_text())
    assert "[red]S17[/red]" in text and "451 degC at 2024-03-10 06:00" in text
    assert text.index("warning") < text.index(" ok ")


def test_observed_data_give_the_expected_findings(data) -> None:
    report = check(data("noaa-daily/stations.csv.gz"))
    findings = {f.what: f for f in report.findings}
    assert (report.facts["frames"], report.facts["points"]) == (1461, 137)
    silent = "5 stations of 137 are silent at the end."
    assert [f.what for f in warnings_of(report)] == ["4 stations lack more than 50%.", silent]
    assert findings[silent].where.count("since") == 5
    assert "'noaa-3951' 98% of Tmax" in findings["4 stations lack more than 50%."].where
    assert report.facts["channels"]["TDP"]["missing_share"] == pytest.approx(0.277, abs=0.005)


@pytest.mark.parametrize("folder", ["nrel-pv-rhode-island", "era5-uk"])
def test_reanalysis_and_modelled_data_give_no_warning(data, folder) -> None:
    pytest.importorskip("eccodes" if folder == "era5-uk" else "h5py")
    report = check(data(folder))
    assert not warnings_of(report), warnings_of(report)
