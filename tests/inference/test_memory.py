"""Bounded memory: queries in chunks give the same forecast, and the limit is kept."""

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
from stonet.inference import session
from stonet.inference.forecast import forecast, forecast_to_file
from stonet.inference.session import (
    INITIAL_QUERIES,
    MAX_QUERIES,
    MEMORY_MARGIN,
    ChunkSize,
    Session,
)
from stonet.system.progress import reporting_to
from stonet.training.run_folder import RunFolder
from stonet.training.trained_model import TrainedModel


@pytest.fixture(scope="module")
def field() -> Field:
    return small_field("sphere", channels=2)


@pytest.fixture(scope="module")
def trained() -> TrainedModel:
    return stirred_run()


class SimulatedProcess:
    """A process whose memory is a constant plus some bytes for each query of a chunk."""

    def __init__(self, patch: pytest.MonkeyPatch, resident: float, per_query: float) -> None:
        self.resident, self.per_query, self.peak = resident, per_query, resident
        patch.setattr(session, "resident_mb", lambda: self.resident / session.MB)
        patch.setattr(session, "peak_mb", lambda: self.peak / session.MB)

    def decode(self, chunk_size: ChunkSize, chunks: int = 20) -> None:
        for _ in range(chunks):
            self.peak = max(self.peak, self.resident + self.per_query * chunk_size.size)
            chunk_size.update(chunk_size.size)


@pytest.mark.parametrize("per_query", [1e3, 3e4, 1e5, 4e5])
def test_chunks_grow_as_long_as_the_memory_allows(
    monkeypatch: pytest.MonkeyPatch, per_query: float
) -> None:
    process, limit = SimulatedProcess(monkeypatch, 5e8, per_query), 10**9
    chunk_size = ChunkSize(limit, result_bytes=10**8)
    process.decode(chunk_size)
    assert process.peak + 10**8 <= limit
    doubled = 2 * MEMORY_MARGIN * per_query * chunk_size.size
    assert chunk_size.size == MAX_QUERIES or process.resident + 1e8 + doubled > limit


def test_without_a_limit_the_chunk_size_is_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    chunk_size = ChunkSize()
    SimulatedProcess(monkeypatch, 5e8, 1e9).decode(chunk_size)
    assert chunk_size.size == MAX_QUERIES


def test_a_memory_that_is_too_small_is_refused_with_a_sufficient_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = SimulatedProcess(monkeypatch, 5e8, 1e6)
    with pytest.raises(ResourceError, match=r"memory of 400 MB is too little: program, model and"):
        ChunkSize(4 * 10**8)
    with pytest.raises(ResourceError, match=r"take 500 MB, the result 600 MB. Give at least \d+M"):
        ChunkSize(10**9, result_bytes=6 * 10**8)
    message = rf"{INITIAL_QUERIES} points at a time 256 MB. Give at least 794M"
    with pytest.raises(ResourceError, match=message):
        process.decode(ChunkSize(6 * 10**8))
    ChunkSize(794 * 2**20)  # the advised memory
    process.decode(ChunkSize(794 * 2**20))


@pytest.mark.parametrize("suffix", [".zarr", ".nc"])
def test_a_forecast_in_chunks_equals_one_at_once(
    trained: TrainedModel, field: Field, tmp_path: Path, suffix: str
) -> None:
    """In memory and in files, up to rounding."""
    sites = small_points("sphere", 50, seed=7)
    expected = forecast(trained, field, at=sites)
    small_chunks = Session(trained, field.points, initial_queries=7, max_queries=16)
    progress: list[tuple[int, int]] = []
    with reporting_to(lambda done, total, _: progress.append((done, total))):
        chunked = forecast(trained, field, at=sites, memory="64G", session=small_chunks)
    np.testing.assert_allclose(chunked.values, expected.values, rtol=0, atol=1e-4)
    assert progress[0] == (7, 50) and progress[-1] == (50, 50)

    path = tmp_path / f"f{suffix}"
    shape = forecast_to_file(trained, field, path, sites, memory="64G", session=small_chunks)
    assert shape == (4, 50)
    engine = {".zarr": "zarr", ".nc": "h5netcdf"}[suffix]
    with xr.open_dataset(path, engine=engine, decode_timedelta=True) as file:
        stored = file.load()
    plain = expected.to_xarray()
    assert set(stored.variables) == set(plain.variables)
    assert set(stored.coords) == set(plain.coords) and stored.attrs == plain.attrs
    for name in plain.variables:
        assert stored[name].dims == plain[name].dims
        if stored[name].dtype.kind == "f":
            np.testing.assert_allclose(stored[name], plain[name], rtol=0, atol=1e-4)
    assert stored.u0.attrs.keys() == plain.u0.attrs.keys()


@pytest.mark.parametrize("name", ["f.zarr", "f.nc"])
def test_a_failed_forecast_leaves_no_file(
    trained: TrainedModel, field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with pytest.raises(ResourceError, match=r"A memory of 1.05 MB is too little"):
        forecast_to_file(trained, field, tmp_path / name, memory="1M")
    monkeypatch.setattr(Session, "decode", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        forecast_to_file(trained, field, tmp_path / name)
    with pytest.raises(UsageError, match=r"cannot be written piece by piece"):
        forecast_to_file(trained, field, tmp_path / "f.csv")
    assert not list(tmp_path.iterdir())


PROGRAM = """
import numpy as np
from stonet.data.geometry import Points
from stonet.inference.forecast import forecast_to_file
from stonet.system.resources import peak_mb
from stonet.training.trained_model import TrainedModel
from stonet.io.read import read

sites = Points(np.random.default_rng(0).uniform([20, -30], [60, 30], (6000, 2)), "sphere")
trained, field = TrainedModel.load("run"), read("data.nc")
forecast_to_file(trained, field, "f.zarr", sites.take(np.arange(2)))
before = peak_mb()
limit = int((before + 60) * 1.024e6)
forecast_to_file(trained, field, "f.zarr", sites, memory=limit)
print(before, peak_mb(), limit / 1.024e6)
"""


@pytest.mark.long
def test_a_real_process_keeps_to_its_limit(
    trained: TrainedModel, field: Field, tmp_path: Path
) -> None:
    RunFolder(tmp_path / "run").publish(trained.files({}))
    field.to_netcdf(str(tmp_path / "data.nc"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    before, peak, limit = map(float, done.stdout.split())
    assert before < peak <= limit
