"""Before a long computation: missing files are named, and hours estimated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from helpers.cells import cell
from helpers.small import small_field

from stonet.errors import UsageError
from stonet.experiments.budgets import experiment_budget
from stonet.experiments.estimate import check_files, estimate_hours
from stonet.experiments.overview import COUNTERPARTS, overview_section
from stonet.experiments.runner import DatasetCache
from stonet.io.write import write
from stonet.training.budget import Budget


def test_minutes_are_added_up_and_few_epochs_cost_nothing() -> None:
    one = experiment_budget("published").cell("comparison", "wave", "stgcn", model="stgcn")
    short = replace(one, training=Budget(epochs=2))
    assert estimate_hours([one, replace(one, seed=1), short], DatasetCache()) == 4 / 60


def test_hours_of_epochs_are_proportional_to_epochs_and_data(tmp_path: Path) -> None:
    for name, frames in (("a", 150), ("b", 300)):
        write(small_field(frames=frames), str(tmp_path / f"{name}.nc"))
    one = replace(cell(str(tmp_path / "a.nc"), "gcgru"), training=Budget(epochs=100))
    twice = replace(one, training=Budget(epochs=200))
    longer = replace(one, dataset=str(tmp_path / "b.nc"))
    hours = {
        len(cells): estimate_hours(cells, DatasetCache()) for cells in ([one], [twice, longer])
    }
    assert hours[1] > 0 and hours[2] > 1.5 * hours[1]  # two and two times, measured anew


def test_missing_data_are_named_with_their_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stonet.experiments.estimate.is_local", lambda name: name == "wave")
    full = experiment_budget("full")
    cells = [full.cell("cost", name, "revised") for name in ("wave", "solar", "humidity")]
    check_files(cells[:1])
    with pytest.raises(UsageError, match=r"2 data sets.*stonet data fetch solar"):
        check_files(cells)


def test_the_overview_counts_missing_cells_of_every_experiment() -> None:
    counts = dict.fromkeys((part.experiment for part in COUNTERPARTS), (3, 5))
    text = "\n".join(overview_section(counts))
    assert text.count("; 2 of 5 cells") == len(COUNTERPARTS)
    assert "cells" not in overview_section(dict.fromkeys(counts, (5, 5)))[2]
