"""Runs cells: what is there is kept, what is missing or stale is computed, by many at once.

Every process goes through the same list and passes by what another one works on; at the end it
waits for those and collects them. A cell that fails leaves nothing behind, and the others go on.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from threading import Thread
from typing import Any

import torch

from stonet.data.field import Dataset
from stonet.errors import StonetError
from stonet.experiments import EXPERIMENTS
from stonet.experiments.cell import Cell, Result, config_hash, rounded
from stonet.experiments.datasets import data_sha256, open_task
from stonet.experiments.store import Store
from stonet.system.resources import PYTHON, commit, cores, forget_peak, import_paths, peak_mb
from stonet.training.budget import Budget, TrainingCost
from stonet.training.trained_model import versions

POLL = 0.5  # seconds between two looks at what another process works on
News = dict[str, Any]
Watch = Callable[[int, int, str], None]  # cells done, of how many, what is worked on


@dataclass
class Outcome:
    """What was found and what went wrong, by cell; `tell` hears of everything as it happens."""

    found: dict[Cell, Result] = field(default_factory=dict)
    failed: dict[Cell, str] = field(default_factory=dict)
    exit_code: int = 0  # of the first failure
    computed: int = 0
    tell: Callable[[Cell, News], None] = lambda cell, news: None

    def begin(self, cell: Cell) -> None:
        self.tell(cell, {"state": "begins"})

    def keep(self, cell: Cell, result: Result, computed: int = 0) -> None:
        self.found[cell] = result
        self.computed += computed
        self.tell(cell, {"state": "done", "computed": computed})

    def fail(self, cell: Cell, why: str, code: int) -> None:
        self.failed[cell] = why
        self.exit_code = self.exit_code or code
        self.tell(cell, {"state": "failed", "why": why, "code": code})

    def left(self, cells: Sequence[Cell]) -> list[Cell]:
        """Those of which nothing is known yet."""
        return [cell for cell in cells if cell not in self.found and cell not in self.failed]


class DatasetCache:
    """The data that are open, one data set at a time, and the hashes of all that were."""

    def __init__(self) -> None:
        self.hashes: dict[str, str] = {}
        self.open: tuple[str, Dataset] | None = None

    def dataset(self, cell: Cell) -> Dataset:
        """The cell's data."""
        name = self.name(cell)
        if self.open is None or self.open[0] != name:
            self.open = None  # the last one's memory is free first
            dataset = open_task(cell.dataset, cell.config.read, cell.inductive)
            self.open, self.hashes[name] = (name, dataset), data_sha256(dataset)
        return self.open[1]

    def sha256(self, cell: Cell) -> str:
        """The hash of the cell's data."""
        name = self.name(cell)
        if name not in self.hashes:
            self.dataset(cell)
        return self.hashes[name]

    @staticmethod
    def name(cell: Cell) -> str:
        """Cells with the same one share their data."""
        return json.dumps([cell.dataset, cell.config.read.model_dump(), cell.inductive])


def compute(cell: Cell, cache: DatasetCache, training: Budget | None = None) -> Result:
    """Train and score one cell, now; `training` repeats an earlier one to the step."""
    dataset, config = cache.dataset(cell), cell.config
    if cell.threads is not None:
        torch.set_num_threads(cell.threads)
    forget_peak()
    wall, cpu = time.perf_counter(), time.process_time()
    budget = training or cell.training
    scores = EXPERIMENTS[cell.experiment].measure(cell, dataset, config, budget)
    machine = {"cores": cores(), "threads": torch.get_num_threads()}
    return Result(
        cell=cell,
        key=cell.key(cache.sha256(cell)),
        scores=rounded(scores),
        config_hash=config_hash(config),
        data_hash=cache.sha256(cell),
        commit=commit(),
        seconds=rounded(time.perf_counter() - wall),
        cpu_seconds=rounded(time.process_time() - cpu),
        peak_mb=rounded(peak_mb()),
        machine=machine | {"load": round(os.getloadavg()[0], 1)},
        versions=versions(),
        date=time.strftime("%Y-%m-%d", time.gmtime()),
    )


def repeat(before: Result) -> Result:
    """The same cell again, with as many steps as were taken then."""
    taken = before.scores.get("training")
    budget = TrainingCost(**taken).budget if taken else None
    return compute(before.cell, DatasetCache(), budget)


def beside(before: Result, after: Result) -> list[dict[str, Any]]:
    """Every single score, then and now; what it cost is left out."""
    old, new = (_flat(r.scores | {"training": {}}) for r in (before, after))
    return [{"score": name, "recorded": old[name], "now": new.get(name)} for name in old]


def _flat(scores: dict[str, Any], above: str = "") -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in scores.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{above}{name}.")
        elif isinstance(value, (int, float)):
            found[f"{above}{name}"] = value
    return found


def kept(cell: Cell, store: Store, cache: DatasetCache, keep_stale: bool = False) -> Result | None:
    """The stored result where it scored_batches the question as it stands now; or marked as stale."""
    result = store.load(cell)
    if result is None:
        return None
    stale = result.key != cell.key(cache.sha256(cell))
    return None if stale and not keep_stale else replace(result, stale=stale)


def run(
    cells: Sequence[Cell],
    store: Store,
    keep_stale: bool = False,
    jobs: int = 1,
    watch: Watch = lambda done, total, what: None,
) -> Outcome:
    """All cells, from the store or computed; what failed is told at the end."""
    cells, cache = in_order(cells), DatasetCache()
    told = Outcome()
    told.tell = lambda cell, news: watch(
        len(cells) - len(told.left(cells)), len(cells), title(cell)
    )
    for cell in cells:
        result = kept(cell, store, cache, keep_stale)
        if result is not None:
            told.keep(cell, result)
    if jobs > 1 and len(told.left(cells)) > 1:
        _by_workers(told.left(cells), store, jobs, told)
    work(cells, store, cache, told)
    return told


def work(
    cells: Sequence[Cell], store: Store, cache: DatasetCache, told: Outcome, wait: bool = True
) -> None:
    """Compute what is not found yet, passing by what others work on; `wait` for these at last."""
    while left := told.left(cells):
        busy = False
        for cell in left:
            with store.claim(cell) as mine:
                result = kept(cell, store, cache)  # another process may have done it
                if result is not None:
                    told.keep(cell, result)
                elif mine:
                    _attempt(cell, store, cache, told)
                else:
                    busy = True
        if busy and not wait:
            return
        if busy:
            time.sleep(POLL)


def _attempt(cell: Cell, store: Store, cache: DatasetCache, told: Outcome) -> None:
    told.begin(cell)
    try:
        result = compute(cell, cache)
        store.save(result)
    except StonetError as error:
        told.fail(cell, str(error), error.exit_code)
    except (MemoryError, OSError) as error:
        told.fail(cell, f"{type(error).__name__}: {error}", 4)
    except Exception as error:
        if os.environ.get("STONET_DEBUG"):
            raise
        told.fail(cell, f"{type(error).__name__}: {error}", 5)
    else:
        told.keep(cell, result, computed=1)


def in_order(cells: Sequence[Cell]) -> list[Cell]:
    """One data set after the other, and the first seed of all models before the second.

    So data are opened once, and two processes do not time the steps of the same model at once.
    """
    shared = {cell: DatasetCache.name(cell) for cell in cells}
    first = {name: number for number, name in enumerate(dict.fromkeys(shared.values()))}
    return sorted(shared, key=lambda cell: (first[shared[cell]], cell.seed))


def title(cell: Cell) -> str:
    """A cell as the progress shows it."""
    return f"{cell.experiment}, {cell.dataset}: {cell.label}, seed {cell.seed}"


def _by_workers(cells: Sequence[Cell], store: Store, jobs: int, told: Outcome) -> None:
    """In processes of their own, one thread each; they agree by their claims."""
    threads = [Thread(target=_follow, args=(cells, store, told)) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _follow(cells: Sequence[Cell], store: Store, told: Outcome) -> None:
    """Start a worker, and write down what it tells, line by line."""
    by_name = {cell.name: cell for cell in cells}
    at: Cell | None = None
    with subprocess.Popen(
        [*PYTHON, "-m", "stonet.experiments.worker", str(store.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ
        | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": import_paths()},
    ) as worker:
        assert worker.stdin is not None and worker.stdout is not None
        json.dump([cell.to_json() for cell in cells], worker.stdin)
        worker.stdin.close()
        for line in worker.stdout:
            if not line.startswith("{"):
                continue  # some library talks
            news = json.loads(line)
            cell = by_name[news["cell"]]
            at = cell if news["state"] == "begins" else None
            if news["state"] == "begins":
                told.begin(cell)
            elif news["state"] == "failed":
                told.fail(cell, news["why"], news["code"])
            elif (result := store.load(cell)) is not None:
                told.keep(cell, result, news["computed"])
    if worker.returncode and at is not None:
        told.fail(at, f"Its process ended with code {worker.returncode}.", 5)
