"""A bounded memory: many questions by parts, the same answers, and a limit that is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from helpers.contracts import small_field, small_points, stirred_run
from helpers.paths import ROOT

from stonet.data.field import Field
from stonet.errors import ResourceError, UsageError
from stonet.inference import forecast as inference
from stonet.inference import session
from stonet.inference.forecast import forecast, forecast_to_file
from stonet.inference.session import FEW, QUERIES, ChunkSize
from stonet.system.progress import reporting_to
from stonet.training.run_folder import RunFolder
from stonet.training.trained_model import TrainedModel


@pytest.fixture(scope="module")
def field() -> Field:
    return small_field("sphere", channels=2)


@pytest.fixture(scope="module")
def run() -> TrainedModel:
    return stirred_run()


class Meter:
    """A process that takes so many bytes besides what each query takes."""

    def __init__(self, patch: pytest.MonkeyPatch, before: float, each: float) -> None:
        self.before, self.each, self.peak = before, each, before
        patch.setattr(session, "resident_mb", lambda: self.before / session.MB)
        patch.setattr(session, "peak_mb", lambda: self.peak / session.MB)

    def answer(self, pace: ChunkSize, pieces: int = 20) -> None:
        for _ in range(pieces):
            self.peak = max(self.peak, self.before + self.each * pace.size)
            pace.observe(pace.size)


@pytest.mark.parametrize("each", [1e3, 3e4, 1e5, 4e5])
def test_pieces_grow_as_long_as_the_memory_allows(
    monkeypatch: pytest.MonkeyPatch, each: float
) -> None:
    meter, limit = Meter(monkeypatch, 5e8, each), 10**9
    pace = ChunkSize(limit, kept=10**8)
    meter.answer(pace)
    assert meter.peak + 10**8 <= limit
    largest = pace.size == QUERIES
    assert largest or meter.before + 1e8 + 2 * session.MARGIN * each * pace.size > limit


def test_without_a_limit_pieces_have_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    pace = ChunkSize()
    Meter(monkeypatch, 5e8, 1e9).answer(pace)
    assert pace.size == QUERIES


def test_a_memory_that_is_too_small_is_refused_with_what_would_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meter = Meter(monkeypatch, 5e8, 1e6)
    with pytest.raises(ResourceError, match=r"memory of 400 MB is too little: program, model and"):
        ChunkSize(4 * 10**8)
    with pytest.raises(ResourceError, match=r"take 500 MB, the answer 600 MB. Give at least \d+M"):
        ChunkSize(10**9, kept=6 * 10**8)
    pace = ChunkSize(6 * 10**8)
    with pytest.raises(ResourceError, match=rf"{FEW} points at a time 256 MB. Give at least 794M"):
        meter.answer(pace)
    ChunkSize(794 * 2**20)  # what was advised
    meter.answer(ChunkSize(794 * 2**20))


@pytest.mark.parametrize("suffix", [".zarr", ".nc"])
def test_parts_are_the_whole(
    run: TrainedModel, field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """By parts of any size, in memory or in a store: the same, but for rounding."""
    sites = small_points("sphere", 50, seed=7)
    whole = forecast(run, field, at=sites)
    monkeypatch.setattr(session, "FEW", 7)
    told: list[tuple[int, int]] = []
    with reporting_to(lambda done, total, what: told.append((done, total))):
        parts = forecast(run, field, at=sites, memory="64G")
    np.testing.assert_allclose(parts.values, whole.values, rtol=0, atol=1e-4)
    assert told[0] == (7, 50) and told[-1] == (50, 50)

    monkeypatch.setattr(inference, "QUERIES", 16)  # stored in four pieces
    assert forecast_to_file(run, field, tmp_path / f"f{suffix}", sites, memory="64G") == (4, 50)
    engine = {".zarr": "zarr", ".nc": "h5netcdf"}[suffix]
    with xr.open_dataset(tmp_path / f"f{suffix}", engine=engine, decode_timedelta=True) as file:
        stored = file.load()
    plain = whole.to_xarray()
    assert set(stored.variables) == set(plain.variables)
    assert set(stored.coords) == set(plain.coords) and stored.attrs == plain.attrs
    for name in plain.variables:
        assert stored[name].dims == plain[name].dims
        if stored[name].dtype.kind == "f":
            np.testing.assert_allclose(stored[name], plain[name], rtol=0, atol=1e-4)
    assert stored.u0.attrs.keys() == plain.u0.attrs.keys()


@pytest.mark.parametrize("name", ["f.zarr", "f.nc"])
def test_what_fails_leaves_no_store(
    run: TrainedModel, field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with pytest.raises(ResourceError, match=r"A memory of 1.05 MB is too little"):
        forecast_to_file(run, field, tmp_path / name, memory="1M")
    monkeypatch.setattr(session.Session, "decode", lambda *asked: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        forecast_to_file(run, field, tmp_path / name)
    with pytest.raises(UsageError, match=r"cannot be written piece by piece"):
        forecast_to_file(run, field, tmp_path / "f.csv")
    assert not list(tmp_path.iterdir())


PROGRAM = """
import numpy as np
from stonet.data.geometry import Points
from stonet.inference.forecast import forecast_to_file
from stonet.system.resources import peak_mb
from stonet.training.trained_model import TrainedModel
from stonet.io.read import read

sites = Points(np.random.default_rng(0).uniform([20, -30], [60, 30], (6000, 2)), "sphere")
run, field = TrainedModel.load("run"), read("data.nc")
forecast_to_file(run, field, "f.zarr", sites.take(np.arange(2)))
before = peak_mb()
limit = int((before + 60) * 1.024e6)
forecast_to_file(run, field, "f.zarr", sites, memory=limit)
print(before, peak_mb(), limit / 1.024e6)
"""


@pytest.mark.long
def test_a_real_process_keeps_to_its_limit(run: TrainedModel, field: Field, tmp_path: Path) -> None:
    RunFolder(tmp_path / "run").publish(run.files({}))
    field.to_netcdf(str(tmp_path / "data.nc"))
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    before, peak, limit = map(float, done.stdout.split())
    assert before < peak <= limit
