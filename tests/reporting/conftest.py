"""Two small runs and their reports, made once: on a sphere and on a plane."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.report_runs import Report, report_of, small_run, stations
from helpers.shell import Shell

from stonet.data.field import Dataset
from stonet.datasets.wave import wave

UNSEEN = (0, 5, 7, 10, 12, 15, 17, 20, 22)


@pytest.fixture(scope="session")
def spherical(tmp_path_factory: pytest.TempPathFactory) -> Report:
    dataset = Dataset((stations(),), 'alps "2026" <b>', UNSEEN)
    run = tmp_path_factory.mktemp("alps") / "run"
    small_run(dataset, run)
    return report_of(run, dataset)


@pytest.fixture(scope="session")
def planar(tmp_path_factory: pytest.TempPathFactory) -> Report:
    dataset = wave(sequences=12, frames=40, seen=60, unseen=20)
    run = tmp_path_factory.mktemp("wave") / "run"
    small_run(dataset, run)
    return report_of(run, dataset)


@pytest.fixture(params=["spherical", "planar"])
def made(request: pytest.FixtureRequest) -> Report:
    report: Report = request.getfixturevalue(request.param)
    return report


@pytest.fixture
def shell(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STONET_CACHE", str(tmp_path / "cache"))
    return Shell(capsys, monkeypatch)
