"""Hindcasts: a forecast from every hour of a year, from one Zarr store to another.

By the commands that anyone would use, each in a process of its own. That memory does not grow with
the series is seen beside the same for a month.
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

from benchmarks.data import WEATHER, globe
from benchmarks.harness import Record, empty_record, in_child
from stonet.errors import StonetError
from stonet.system.progress import ProgressCallback

STATIONS, YEAR, MONTH, PAST = 500, 8760, 720, 12
SHORT = ("train.epochs=1", "train.steps=20", "train.validation_windows=8")  # it need not be good
ALIKE = 5  # forecasts that are looked at one by one


def run(watch: ProgressCallback) -> list[Record]:
    """A year and a month, with the same model."""
    return measure(watch, STATIONS, YEAR, MONTH)


def measure(watch: ProgressCallback, stations: int, year: int, month: int) -> list[Record]:
    """Train for a moment, forecast from every hour of both, compare."""
    with tempfile.TemporaryDirectory(prefix="stonet-hindcast-") as name:
        folder = Path(name)
        watch(0, 4, f"{stations} stations, {year} hours")
        in_child({"do": "observed", "folder": name, "stations": stations, "hours": [year, month]})
        watch(1, 4, "training")
        words = [word for setting in (*WEATHER, *SHORT) for word in ("--set", setting)]
        _stonet("fit", str(folder / f"{month}.zarr"), "-o", str(folder / "run"), *words)
        found = {}
        for number, hours in enumerate((month, year)):
            watch(2 + number, 4, f"{hours} hindcasts")
            data, out = folder / f"{hours}.zarr", folder / f"hindcast{hours}.zarr"
            found[hours] = _stonet("hindcast", str(folder / "run"), str(data), "-o", str(out))
        told = in_child({"do": "compared", "folder": name, "hours": year}, OMP_NUM_THREADS="1")
    record = empty_record("hindcast", stations, 24, 1, "one by one") | told
    ours, less = found[year], found[month]
    return [
        record
        | {
            "forecasts": year,
            "seconds": ours["seconds"],
            "ms_each": 1e3 * ours["seconds"] / year,
            "peak_gb": ours["peak_gb"],
            "peak_over_a_months": ours["peak_gb"] / less["peak_gb"],
        }
    ]


def _stonet(*words: str) -> Record:
    return in_child({"do": "command", "words": words}, OMP_NUM_THREADS="1")


def observed(folder: str, stations: int, hours: list[int]) -> Record:
    """In a child: stores of a field that has so many hours to forecast from."""
    from stonet.io.write import write

    field = globe(stations, max(hours) + PAST - 1).episodes[0]
    for length in hours:
        write(field.between(0, length + PAST - 1), Path(folder) / f"{length}.zarr")
    return {}


def command(words: list[str]) -> Record:
    """In a child: what a command of stonet takes, from its start to its end."""
    from stonet.system.resources import peak_mb

    sys.argv, started = ["stonet", *words], time.perf_counter()
    try:
        runpy.run_module("stonet", run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise StonetError(f"stonet {' '.join(words)} ended with {end.code}.") from None
    return {"seconds": time.perf_counter() - started, "peak_gb": peak_mb() / 1e3}


def compared(folder: str, hours: int) -> Record:
    """In a child: how far some of the hindcasts are from forecasts of the field up to then.

    The base foretells this field so well that the network's part hardly shows: what is checked is
    that each is of its own time. tests/test_hindcast.py compares networks that say something.
    """
    import xarray as xr

    from stonet.inference.forecast import forecast
    from stonet.io.read import read
    from stonet.training.trained_model import TrainedModel

    place = Path(folder)
    trained, field = TrainedModel.load(place / "run"), read(place / f"{hours}.zarr")
    errors: list[float] = []
    with xr.open_zarr(place / f"hindcast{hours}.zarr", chunks=None) as file:
        assert file.sizes["forecast_reference_time"] == hours
        for issue in np.linspace(0, hours - 1, ALIKE).round().astype(int):
            wanted = forecast(trained, field.between(issue, issue + PAST)).values[..., 0]
            got: Any = file["wave"][issue].values
            errors.append(float(np.abs(got - wanted).max() / np.abs(wanted).max()))
    size = sum(
        os.path.getsize(part) for part in place.glob(f"hindcast{hours}.zarr/**/*") if part.is_file()
    )
    return {"max_error": max(errors), "stored_mb": size / 1e6}
