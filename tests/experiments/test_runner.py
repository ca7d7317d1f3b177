"""Cells are found again, computed once, by whoever comes first; what changed is computed anew."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.cells import SMOKE, cell, result, scores
from helpers.small import small_dataset, small_field

from stonet.data.field import Dataset
from stonet.errors import DataError, StonetError, UsageError
from stonet.experiments import EXPERIMENTS, comparison, runner
from stonet.experiments.budgets import EXPERIMENT_BUDGETS, ExperimentBudget, experiment_budget
from stonet.experiments.cell import Cell
from stonet.experiments.datasets import TASKS, check_task, data_sha256, open_task
from stonet.experiments.runner import DatasetCache, beside, repeat, run
from stonet.experiments.store import Store, read_result
from stonet.io.write import write
from stonet.training.budget import Budget


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "a.nc"
    write(small_field(), path)
    return str(path)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    """A measurement that takes no time; the cells that were measured."""
    seen: list[Cell] = []

    def measure(cell: Cell, *others: Any) -> dict[str, Any]:
        seen.append(cell)
        if cell.seed == 13:
            raise StonetError("training diverged")
        return {"mae": 1 / 3, "training": {"epochs": 1, "per_epoch": 4}}

    monkeypatch.setattr(comparison, "measure", measure)
    return seen


def test_a_cell_survives_its_file(data: str, store: Store, calls: list[Cell]) -> None:
    asked = cell(data, extra={"ratio": 0.5, "labels": None})
    told = run([asked], store)
    kept = read_result(store.path(asked))
    assert kept == told.found[asked] and kept.cell == asked
    assert kept.scores["mae"] == 0.333333 and Cell.from_json(asked.to_json()) == asked
    assert store.path(asked).parent.parent.name == "comparison"
    assert store.all("comparison", "smoke") == [kept] and not store.all("comparison", "small")


def test_the_key_feels_all_that_decides_and_nothing_else(data: str) -> None:
    usual = cell(data)
    key = usual.key("data")
    same = (
        replace(usual, label="other"),
        cell(data, settings=("train.clip=5.0",)),  # the default
        cell(data, settings=("network.latent=9",)),  # nothing to a baseline
    )
    other = (
        replace(usual, seed=1),
        replace(usual, training=Budget(epochs=2, steps=4)),
        replace(usual, extra=(("ratio", 0.5),)),
        cell(data, settings=("train.clip=4.0",)),
        cell(data, settings=("baseline.hidden=9",)),
        cell(data, "gcgru"),
    )
    assert {one.key("data") for one in same} == {key}
    assert key not in {one.key("data") for one in other} and key != usual.key("other data")
    ours, wider = cell(data, "stonet"), cell(data, "stonet", settings=("network.latent=9",))
    assert ours.key("data") != wider.key("data")
    assert ours.key("data") == cell(data, "stonet", settings=("baseline.hidden=9",)).key("data")


def test_nothing_is_computed_twice(data: str, store: Store, calls: list[Cell]) -> None:
    cells = [cell(data, label, seed) for label in ("stgcn", "gcgru") for seed in (0, 1)]
    run(cells[:3], store)
    watched: list[tuple[int, int]] = []
    told = run(cells, store, watch=lambda done, total, what: watched.append((done, total)))
    assert sorted(calls, key=str) == sorted(cells, key=str)
    assert told.computed == 1 and set(told.found) == set(cells)
    assert watched[0] == (1, 4) and watched[-1] == (4, 4)


def test_what_changed_is_computed_anew(
    data: str, store: Store, calls: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = cell(data)
    run([asked], store)
    write(small_field(seed=1), data)
    stale = run([asked], store, keep_stale=True)
    assert stale.found[asked].stale and not stale.computed
    assert comparison.by_label([stale.found[asked]])["stgcn"][0].commit
    assert run([asked], store).computed == 1
    monkeypatch.setattr("stonet.experiments.cell.__version__", "another")
    told = run([asked], store)
    assert told.computed == 1 and not told.found[asked].stale
    assert run([asked], store).computed == 0 and len(calls) == 3
    assert len(list(store.folder.glob("*/*/*.json"))) == 1  # the old one is gone


def test_a_failure_leaves_nothing_and_stops_nobody(
    data: str, store: Store, calls: list[Cell]
) -> None:
    bad, good = cell(data, seed=13), cell(data, seed=14)
    told = run([bad, good], store)
    assert told.failed == {bad: "training diverged"} and told.exit_code == 5
    assert set(told.found) == {good} and not store.path(bad).exists()


def test_a_cell_that_another_process_works_on_is_passed_by_and_collected(
    data: str, store: Store, calls: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "POLL", 0.01)
    first, second = cell(data, "stgcn"), cell(data, "gcgru")
    other = runner.compute(first, DatasetCache())
    calls.clear()
    with store.claim(first) as mine, store.claim(first) as twice:
        assert mine and not twice
        waiting: dict[str, Any] = {}
        thread = threading.Thread(target=lambda: waiting.update(told=run([first, second], store)))
        thread.start()
        while not store.path(second).exists():
            thread.join(0.01)
        assert thread.is_alive() and calls == [second]
        store.save(other)
        thread.join(10)
    assert waiting["told"].found[first] == other and calls == [second]


def test_a_dead_process_holds_no_claim(data: str, store: Store) -> None:
    asked = cell(data)
    code = (
        "import sys, time, json\nfrom pathlib import Path\n"
        "from stonet.experiments.cell import Cell\nfrom stonet.experiments.store import Store\n"
        "with Store(Path(sys.argv[1])).claim(Cell.from_json(json.loads(sys.argv[2]))):\n"
        "    print('mine', flush=True)\n    time.sleep(60)\n"
    )
    words = [sys.executable, "-c", code, str(store.folder), json.dumps(asked.to_json())]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "mine\n"
        with store.claim(asked) as mine:
            assert not mine
        child.kill()
    with store.claim(asked) as mine:
        assert mine


def test_workers_share_the_cells(data: str, store: Store) -> None:
    """Real trainings in processes of their own; the same numbers as in this one."""
    cells = [cell(data, label) for label in ("persistence", "gcgru", "daily")]
    told = run(cells, store, jobs=2)
    assert set(told.found) == set(cells) and told.computed == 3
    assert "needs data.past" in told.found[cells[2]].scores["skipped"]
    again = repeat(told.found[cells[1]])
    lines = beside(told.found[cells[1]], again)
    assert {line["score"] for line in lines} >= {"mae", "rmse", "bias", "spread.median"}
    assert all(line["recorded"] == line["now"] for line in lines)


def test_a_file_that_is_no_result_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"format": 1}')
    with pytest.raises(DataError, match="no result"):
        read_result(tmp_path / "x.json")
    with pytest.raises(UsageError, match="No result"):
        read_result(tmp_path / "y.json")


def test_data_are_told_apart_by_all_that_models_see() -> None:
    dataset = small_dataset(unseen=3)
    field = dataset.episodes[0]
    usual = data_sha256(dataset)

    def changed(**parts: Any) -> Dataset:
        return replace(dataset, episodes=(replace(field, **parts),))

    values = field.values.copy()
    values[5, 5] += 1
    mask = field.observed.copy()
    mask[7, 7] = ~mask[7, 7]
    others = (
        changed(values=values),
        changed(mask=mask),
        changed(times=field.times + 1),
        changed(units=("K",)),
        replace(dataset, unseen=(0,)),
        replace(dataset, horizon=5),
    )
    assert len({usual, *map(data_sha256, others)}) == 1 + len(others)
    assert data_sha256(replace(dataset, name="other")) == usual
    assert data_sha256(changed(notes=("read",))) == usual


def test_a_task_holds_points_out_only_where_they_are_asked_for() -> None:
    read = SMOKE.cell("comparison", "wave-short", "stonet").config.read
    plain, inductive = (open_task("wave-short", read, wish) for wish in (False, True))
    assert len(plain.points) == 24 and not plain.unseen
    assert len(inductive.points) == 24 and inductive.unseen
    with pytest.raises(UsageError, match="Did you mean 'wind-bhutan'"):
        check_task("wind-butan")


def test_wishes_change_the_efforts_name() -> None:
    small = experiment_budget("small")
    assert small.changed() == small and small.name == "small"
    assert small.changed(minutes=small.training.minutes) == small
    assert small.changed(minutes=2.0).name == "small-changed"
    assert small.changed(settings=("train.lr=1",)).name == "small-changed"
    with pytest.raises(UsageError, match="Choose one of: full, long, small, smoke"):
        experiment_budget("tiny")
    with pytest.raises(UsageError, match="train"):
        small.changed(settings=("train.rate=1",)).cell("comparison", "wave", "stonet")


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("effort", EXPERIMENT_BUDGETS.values(), ids=EXPERIMENT_BUDGETS)
def test_every_experiment_asks_for_cells_that_can_be_told_apart(
    name: str, effort: ExperimentBudget
) -> None:
    tasks, seeds = effort.datasets_of(name), effort.seeds_of(name)
    cells = EXPERIMENTS[name].cells(tasks, (), seeds, effort)
    assert len({Store(Path()).path(one) for one in cells}) == len(cells)
    assert {one.dataset for one in cells} == set(tasks)
    drawn = {one.seed for one in cells if "seed=" not in one.label}
    assert drawn <= set(range(seeds))
    assert all(one.experiment == EXPERIMENTS[name].NAME == name for one in cells)
    with pytest.raises(UsageError, match="Unknown"):
        EXPERIMENTS[name].cells(tasks, ("nothing",), 1, effort)


def test_published_tasks_stand_for_the_papers_six() -> None:
    assert {TASKS[name].paper for name in EXPERIMENT_BUDGETS["small"].tasks} == {
        "Wave", "Solar", "Temperature", "Humidity", "Cloud", "Wind",
    }  # fmt: skip


def test_order_spares_opening_data_twice(data: str) -> None:
    cells = [cell(task, "stgcn", seed) for seed in (0, 1) for task in ("wave", data)]
    ordered = runner.in_order(cells)
    assert [(one.dataset, one.seed) for one in ordered] == [
        ("wave", 0), ("wave", 1), (data, 0), (data, 1),
    ]  # fmt: skip


def test_the_table_tells_who_is_better_and_whether_that_is_luck() -> None:
    def noise(i: np.ndarray) -> np.ndarray:
        return 1 + np.sin(i**2)

    rows = {
        "persistence": lambda i: noise(i) + 4,
        "linear": noise,
        "stgcn": lambda i: noise(i) + 1,
        "stgcn+base": lambda i: noise(i) - 0.5,  # neither a baseline nor a reference forecast
        "stonet": lambda i: 0.9 * noise(i),
        "daily": None,
    }
    results = [
        result(cell("wave", label), {"skipped": "no days"} if f is None else scores(f))
        for label, f in rows.items()
    ]
    results.append(result(cell("wave", "stonet", 1), scores(lambda i: 0.8 * noise(i))))
    lines = comparison.table(results)
    order = ["stgcn+base", "stonet", "linear", "stgcn", "persistence"]
    assert [line["model"] for line in lines] == order
    ours, linear = lines[1], lines[2]
    assert ours["second"] == "linear" and ours["improvement"] == pytest.approx(15.0)
    assert ours["high"] < 0 and ours["p"] < 0.01 and ours["seeds"] == 2
    assert ours["second_based"] == "stgcn+base" and ours["improvement_based"] < 0
    few = comparison.tested(np.arange(10.0), np.arange(10.0) + 1)
    assert few == {}  # ten windows are a few days: no test of anything
    assert ours["mae_std"] == pytest.approx(0.05 * linear["mae"])
    assert lines[4]["skill"] == 0 and "improvement" not in linear


def test_floors_and_rivals_on_the_base_have_the_first_seed_alone() -> None:
    labels = ("stgcn", "stgcn+base", "linear")
    found = comparison.cells(("wave",), labels, 2, EXPERIMENT_BUDGETS["small"])
    asked = [(cell.label, cell.seed) for cell in found]
    assert asked == [("stgcn", 0), ("stgcn", 1), ("stgcn+base", 0), ("linear", 0)]
