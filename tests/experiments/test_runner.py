"""Cells are computed once, by one of several processes; stale ones are computed again."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from helpers.cells import cell
from helpers.small import small_field

from stonet.experiments import comparison, runner
from stonet.experiments.cell import Cell
from stonet.experiments.runner import DatasetCache, compare_scores, repeat, run
from stonet.experiments.store import Store
from stonet.io.write import write


def test_stored_cells_are_not_computed_again(
    data_file: str, store: Store, calls: list[Cell]
) -> None:
    cells = [cell(data_file, label, seed) for label in ("stgcn", "gcgru") for seed in (0, 1)]
    run(cells[:3], store)
    watched: list[tuple[int, int]] = []
    outcome = run(cells, store, watch=lambda done, total, what: watched.append((done, total)))
    assert sorted(calls, key=str) == sorted(cells, key=str)
    assert outcome.computed == 1 and set(outcome.results) == set(cells)
    assert watched[0] == (1, 4) and watched[-1] == (4, 4)


def test_stale_cells_are_computed_again(data_file: str, store: Store, calls: list[Cell]) -> None:
    one = cell(data_file)
    run([one], store)
    write(small_field(seed=1), data_file)
    stale = run([one], store, keep_stale=True)
    assert stale.results[one].stale and not stale.computed
    assert comparison.by_label([stale.results[one]])["stgcn"][0].commit
    assert run([one], store).computed == 1
    stored = store.load(one)
    assert stored is not None
    store.save(replace(stored, versions=stored.versions | {"stonet": "0.0.1"}))
    outcome = run([one], store)
    assert outcome.computed == 1 and not outcome.results[one].stale
    assert run([one], store).computed == 0 and len(calls) == 3
    assert len(list(store.folder.glob("*/*/*.json"))) == 1  # the old one is gone


def test_a_failed_cell_leaves_no_file_and_the_others_go_on(
    data_file: str, store: Store, calls: list[Cell]
) -> None:
    bad, good = cell(data_file, seed=13), cell(data_file, seed=14)
    outcome = run([bad, good], store)
    assert outcome.failed == {bad: "training diverged"} and outcome.exit_code == 5
    assert set(outcome.results) == {good} and not store.path(bad).exists()


def test_cells_of_another_process_are_skipped_and_collected(
    data_file: str, store: Store, calls: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "POLL_SECONDS", 0.01)
    first, second = cell(data_file, "stgcn"), cell(data_file, "gcgru")
    other = runner.compute(first, DatasetCache())
    calls.clear()
    with store.claim(first) as mine, store.claim(first) as twice:
        assert mine and not twice
        waiting: dict[str, Any] = {}
        thread = threading.Thread(
            target=lambda: waiting.update(outcome=run([first, second], store))
        )
        thread.start()
        while not store.path(second).exists():
            thread.join(0.01)
        assert thread.is_alive() and calls == [second]
        store.save(other)
        thread.join(10)
    assert waiting["outcome"].results[first] == other and calls == [second]


def test_worker_processes_give_the_same_scores(data_file: str, store: Store) -> None:
    cells = [cell(data_file, label) for label in ("persistence", "gcgru", "daily")]
    outcome = run(cells, store, jobs=2)
    assert set(outcome.results) == set(cells) and outcome.computed == 3
    assert "data.past" in outcome.results[cells[2]].scores["skipped"]
    again = repeat(outcome.results[cells[1]])
    lines = compare_scores(outcome.results[cells[1]], again)
    assert {line["score"] for line in lines} >= {"mae", "rmse", "bias", "spread.median"}
    assert all(line["recorded"] == line["now"] for line in lines)


def test_cells_are_ordered_by_data_so_that_each_is_opened_once(data_file: str) -> None:
    cells = [cell(name, "stgcn", seed) for seed in (0, 1) for name in ("wave", data_file)]
    ordered = runner.in_order(cells)
    assert [(one.dataset, one.seed) for one in ordered] == [
        ("wave", 0), ("wave", 1), (data_file, 0), (data_file, 1),
    ]  # fmt: skip
