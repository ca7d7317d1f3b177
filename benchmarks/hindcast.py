"""Hindcasts: a forecast from every hour of a year, from one Zarr store to another.

Made with the `stonet` commands, each in a process of its own. A month of hindcasts beside the year
shows that memory does not grow with the length of the series.
"""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import LATENT, WEATHER, globe
from benchmarks.harness import Record, Watch, empty_record, in_process
from stonet.errors import StonetError

STATIONS, YEAR_HOURS, MONTH_HOURS, PAST_HOURS = 500, 8760, 720, 12
SHORT_TRAINING = ("train.epochs=1", "train.steps=20", "train.validation_windows=8")
COMPARED_FORECASTS = 5


def run(watch: Watch) -> list[Record]:
    """A year and a month of hindcasts with the same model."""
    return measure(watch, STATIONS, YEAR_HOURS, MONTH_HOURS)


def measure(watch: Watch, stations: int, year: int, month: int) -> list[Record]:
    """Train briefly, forecast from every hour of both periods, compare.

    Args:
        watch: called before each step.
        stations: number of points.
        year: hours of the long period.
        month: hours of the short period, on which the model is trained.
    """
    with tempfile.TemporaryDirectory(prefix="stonet-hindcast-") as name:
        folder = Path(name)
        watch(0, 4, f"{stations} stations, {year} hours")
        sizes = {"folder": name, "stations": stations, "hours": [year, month]}
        in_process(write_observations, sizes)
        watch(1, 4, "training")
        words = [word for setting in (*WEATHER, *SHORT_TRAINING) for word in ("--set", setting)]
        _stonet("fit", str(folder / f"{month}.zarr"), "-o", str(folder / "run"), *words)
        costs = {}
        for number, hours in enumerate((month, year)):
            watch(2 + number, 4, f"{hours} hindcasts")
            data, out = folder / f"{hours}.zarr", folder / f"hindcast{hours}.zarr"
            words = "hindcast", str(folder / "run"), str(data), "-o", str(out), "--no-feedback"
            costs[hours] = _stonet(*words)
        errors = in_process(
            compare_with_forecasts, {"folder": name, "hours": year}, OMP_NUM_THREADS="1"
        )
    return [
        empty_record("hindcast", stations, LATENT, 1, "one by one")
        | errors
        | {
            "forecasts": year,
            "seconds": costs[year]["seconds"],
            "ms_each": 1e3 * costs[year]["seconds"] / year,
            "peak_gb": costs[year]["peak_gb"],
            "peak_over_a_months": costs[year]["peak_gb"] / costs[month]["peak_gb"],
        }
    ]


def _stonet(*words: str) -> Record:
    """Seconds and peak memory of a `stonet` command on one thread."""
    return in_process(run_command, {"words": words}, OMP_NUM_THREADS="1")


def write_observations(folder: str, stations: int, hours: list[int]) -> Record:
    """In a child: a store for each number of hours to forecast from."""
    from stonet.io.write import write

    field = globe(stations, max(hours) + PAST_HOURS - 1).episodes[0]
    for length in hours:
        write(field.between(0, length + PAST_HOURS - 1), Path(folder) / f"{length}.zarr")
    return {}


def run_command(words: list[str]) -> Record:
    """In a child: seconds and peak memory of one `stonet` command, start-up included."""
    from stonet.system.resources import peak_mb

    sys.argv, started = ["stonet", *words], time.perf_counter()
    try:
        runpy.run_module("stonet", run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise StonetError(f"stonet {' '.join(words)} ended with code {end.code}.") from None
    return {"seconds": time.perf_counter() - started, "peak_gb": peak_mb() / 1e3}


def compare_with_forecasts(folder: str, hours: int) -> Record:
    """In a child: the largest difference between some hindcasts and single forecasts, uncorrected.

    It shows that each hindcast belongs to its own issue time.
    """
    import xarray as xr

    from stonet.inference.forecast import forecast
    from stonet.io.read import read
    from stonet.training.trained_model import TrainedModel

    root = Path(folder)
    trained, field = TrainedModel.load(root / "run"), read(root / f"{hours}.zarr")
    errors: list[float] = []
    with xr.open_zarr(root / f"hindcast{hours}.zarr", chunks=None) as store:
        assert store.sizes["forecast_reference_time"] == hours
        for issue in np.linspace(0, hours - 1, COMPARED_FORECASTS).round().astype(int):
            expected = forecast(trained, field.between(issue, issue + PAST_HOURS)).values[..., 0]
            stored: Any = store["wave"][issue].values
            errors.append(float(np.abs(stored - expected).max() / np.abs(expected).max()))
    files = (path for path in root.glob(f"hindcast{hours}.zarr/**/*") if path.is_file())
    return {"max_error": max(errors), "stored_mb": sum(map(os.path.getsize, files)) / 1e6}
