"""The results page agrees with the stored results, and counts the missing ones."""

from __future__ import annotations

from pathlib import Path

from helpers.cells import result
from helpers.paths import ROOT

from stonet.experiments import EXPERIMENTS
from stonet.experiments.budgets import EXPERIMENT_BUDGETS
from stonet.experiments.report import FIGURES, page, write_page
from stonet.experiments.store import Store


def test_the_page_agrees_with_the_stored_results() -> None:
    """`stonet reproduce page` writes it."""
    assert (ROOT / "docs" / "results.md").read_text() == page(Store(ROOT / "results"))


def test_every_figure_of_the_page_exists() -> None:
    page_text = (ROOT / "docs" / "results.md").read_text()
    names = [part.partition(")")[0] for part in page_text.split("](figures/")[1:]]
    assert all((ROOT / "docs" / "figures" / name).is_file() for name in names)
    assert set(FIGURES) == set(EXPERIMENTS)


def test_the_page_shows_the_stored_cells_and_counts_the_missing_ones(tmp_path: Path) -> None:
    usual, store = EXPERIMENT_BUDGETS["published"], Store(tmp_path)
    training = dict(parameters=1, steps=2, cpu_seconds=3.0, best_validation=0.1)
    for cell in EXPERIMENTS["comparison"].cells(("wave",), ("stonet", "linear", "daily"), 1, usual):
        mae = {"stonet": 0.0015, "linear": 0.002}.get(cell.label)
        scores = {"mae": mae, "rmse": mae, "mape": 7.0, "bias": 0.0, "by_window": [1.0, 2.0, mae]}
        scores |= {"by_lead": {"mae": [mae]}, "training": training, "by_hour": None, "worst": []}
        scores |= {"spread": {"median": 0.001, "p90": 0.002, "max": 0.003}}
        store.save(result(cell, scores if mae else {"skipped": "no days"}))
    text = page(store)
    assert "| stonet | **1.5** | - | - | - | - | - |" in text
    assert "| linear | *2* |" in text and "2 (linear) | +25.0 % |" in text
    assert "**not measured**" in text  # needs all models
    assert "cells are stale" in text and "comparison daily" in text
    assert "not possible: daily on wave" in text and "cells are not computed yet**" in text
    assert "10.3 %" in text  # the paper's own improvement on Wave
    assert "With more time" not in text  # nothing is stored
    long = EXPERIMENT_BUDGETS["long"].cell("comparison", "wave", "stonet")
    store.save(result(long, scores | {"mae": 0.0013}))
    assert "### With more time" in page(store) and "| stonet | **1.3** | - |" in page(store)
    store.path(long).unlink()
    (tmp_path / "docs").mkdir()
    written = write_page(tmp_path, tmp_path / "docs")
    assert written[0].read_text() == text
    assert {path.name for path in written[1:]} == {
        "results-comparison.png", "results-comparison-leads.png",
    }  # fmt: skip
