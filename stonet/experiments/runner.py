"""Computes cells: stored results are kept, missing and stale ones computed, by many processes.

Every process goes through the same list and skips the cells that another one works on; at the end
it waits for those and collects them. A cell that fails leaves no file, and the others go on.

`python -m stonet.experiments.runner FOLDER < cells.json` is a worker process. It prints one JSON
object per event: a cell starts, is done, or has failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from stonet.data.checksum import data_sha256
from stonet.data.field import Dataset
from stonet.errors import StonetError, UsageError
from stonet.experiments import EXPERIMENTS
from stonet.experiments.cell import Cell, Result, rounded
from stonet.experiments.datasets import open_experiment_data
from stonet.experiments.store import Store
from stonet.system.progress import ProgressCallback, ignore_progress
from stonet.system.provenance import commit
from stonet.system.resources import PYTHON, cores, import_paths, peak_mb, reset_peak
from stonet.training.budget import Budget, TrainingCost
from stonet.training.trained_model import versions

POLL_SECONDS = 0.5  # between two checks of cells that another process works on
Event = dict[str, Any]


@dataclass
class Outcome:
    """Results and failures by cell; `on_event` is called at every change.

    Args:
        results: of the cells that are done.
        failed: messages of the cells that failed.
        exit_code: of the first failure.
        computed: cells that were computed now.
        on_event: called with the cell and the event.
    """

    results: dict[Cell, Result] = field(default_factory=dict)
    failed: dict[Cell, str] = field(default_factory=dict)
    exit_code: int = 0
    computed: int = 0
    on_event: Callable[[Cell, Event], None] = lambda cell, event: None

    def start(self, cell: Cell) -> None:
        """A cell is being computed.

        Args:
            cell: that begins.
        """
        self.on_event(cell, {"state": "started"})

    def done(self, cell: Cell, result: Result, computed: int = 0) -> None:
        """The result of a cell is known; `computed` is 1 where it is new.

        Args:
            cell: that is done.
            result: stored or new.
            computed: 1 where the result is new.
        """
        self.results[cell] = result
        self.computed += computed
        self.on_event(cell, {"state": "done", "computed": computed})

    def fail(self, cell: Cell, message: str, code: int) -> None:
        """A cell could not be computed.

        Args:
            cell: that failed.
            message: of the error.
            code: exit code of the error.
        """
        self.failed[cell] = message
        self.exit_code = self.exit_code or code
        self.on_event(cell, {"state": "failed", "message": message, "code": code})

    def pending(self, cells: Sequence[Cell]) -> list[Cell]:
        """The cells without a result or a failure.

        Args:
            cells: to be looked up.
        """
        return [cell for cell in cells if cell not in self.results and cell not in self.failed]


class DatasetCache:
    """The data set in use, one at a time, and the hashes of all that were opened."""

    def __init__(self) -> None:
        self.hashes: dict[str, str] = {}
        self.open: tuple[str, Dataset] | None = None

    def dataset(self, cell: Cell) -> Dataset:
        """The data of a cell.

        Args:
            cell: its data are opened if they are not in use.
        """
        name = self.name(cell)
        if self.open is None or self.open[0] != name:
            self.open = None  # frees the memory of the last one first
            dataset = open_experiment_data(cell.dataset, cell.config.read, cell.inductive)
            self.open, self.hashes[name] = (name, dataset), data_sha256(dataset)
        return self.open[1]

    def sha256(self, cell: Cell) -> str:
        """The hash of a cell's data.

        Args:
            cell: its data are opened if their hash is unknown.
        """
        name = self.name(cell)
        if name not in self.hashes:
            self.dataset(cell)
        return self.hashes[name]

    @staticmethod
    def name(cell: Cell) -> str:
        """A name that cells with the same data share.

        Args:
            cell: whose data are named.
        """
        return json.dumps([cell.dataset, cell.config.read.model_dump(), cell.inductive])


def compute(cell: Cell, cache: DatasetCache, training: Budget | None = None) -> Result:
    """Train and score one cell.

    Args:
        cell: what to compute.
        cache: of data sets.
        training: in place of the cell's own, to repeat an earlier training.
    """
    dataset, config = cache.dataset(cell), cell.config
    if cell.threads is not None:
        torch.set_num_threads(cell.threads)
    reset_peak()
    wall, cpu = time.perf_counter(), time.process_time()
    budget = training or cell.training
    try:
        scores = EXPERIMENTS[cell.experiment].measure(cell, dataset, config, budget)
    except UsageError as error:  # the model cannot be run on these data
        scores = {"skipped": str(error)}
    machine = {"cores": cores(), "threads": torch.get_num_threads()}
    return Result(
        cell=cell,
        settings=cell.relevant_settings,
        scores=rounded(scores),
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
    """Compute a stored cell again with its budget; one of epochs gives the same scores.

    Args:
        before: a stored result.
    """
    training = before.scores.get("training")
    budget = TrainingCost(**training).budget if training else None
    return compute(before.cell, DatasetCache(), budget)


def compare_scores(before: Result, after: Result) -> list[dict[str, Any]]:
    """Every score of both results side by side, costs left out.

    Args:
        before: the stored result.
        after: the result of now.
    """
    old, new = (_flat(r.scores | {"training": {}}) for r in (before, after))
    return [{"score": name, "recorded": old[name], "now": new.get(name)} for name in old]


def _flat(scores: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """Nested scores by dotted names."""
    flat: dict[str, float] = {}
    for name, value in scores.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, (int, float)):
            flat[f"{prefix}{name}"] = value
    return flat


def load_valid(
    cell: Cell, store: Store, cache: DatasetCache, keep_stale: bool = False
) -> Result | None:
    """The stored result of a cell; None if there is none, or a stale one without `keep_stale`.

    Args:
        cell: whose result is loaded.
        store: of results.
        cache: of data sets, for their hashes.
        keep_stale: load stale results as well.
    """
    result = store.load(cell)
    if result is None:
        return None
    stale = result.is_stale(cache.sha256(cell))
    return None if stale and not keep_stale else replace(result, stale=stale)


def run(
    cells: Sequence[Cell],
    store: Store,
    keep_stale: bool = False,
    jobs: int = 1,
    watch: ProgressCallback = ignore_progress,
) -> Outcome:
    """Load or compute all cells.

    Args:
        cells: what to compute.
        store: where results are kept.
        keep_stale: use stale results.
        jobs: worker processes, one thread each.
        watch: called at every change.
    """
    cells, cache, outcome = in_order(cells), DatasetCache(), Outcome()
    outcome.on_event = lambda cell, event: watch(
        len(cells) - len(outcome.pending(cells)), len(cells), title(cell)
    )
    for cell in cells:
        result = load_valid(cell, store, cache, keep_stale)
        if result is not None:
            outcome.done(cell, result)
    pending = outcome.pending(cells)
    if jobs > 1 and len(pending) > 1:
        threads = [Thread(target=_follow_worker, args=(pending, store, outcome))
                   for _ in range(jobs)]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    work(cells, store, cache, outcome)
    return outcome


def work(
    cells: Sequence[Cell], store: Store, cache: DatasetCache, outcome: Outcome, wait: bool = True
) -> None:
    """Compute pending cells, except those of other processes; `wait` for these at the end.

    Args:
        cells: to compute.
        store: of results.
        cache: of data sets.
        outcome: collects results and failures.
        wait: for cells that other processes work on.
    """
    while pending := outcome.pending(cells):
        busy = False
        for cell in pending:
            with store.claim(cell) as claimed:
                result = load_valid(cell, store, cache)  # another process may have computed it
                if result is not None:
                    outcome.done(cell, result)
                elif claimed:
                    _attempt(cell, store, cache, outcome)
                else:
                    busy = True
        if busy and not wait:
            return
        if busy:
            time.sleep(POLL_SECONDS)


def _attempt(cell: Cell, store: Store, cache: DatasetCache, outcome: Outcome) -> None:
    """Compute and store one cell, or record its failure."""
    outcome.start(cell)
    try:
        result = compute(cell, cache)
        store.save(result)
    except StonetError as error:
        outcome.fail(cell, str(error), error.exit_code)
    except (MemoryError, OSError) as error:
        outcome.fail(cell, f"{type(error).__name__}: {error}", 4)
    except Exception as error:
        if os.environ.get("STONET_DEBUG"):
            raise
        outcome.fail(cell, f"{type(error).__name__}: {error}", 5)
    else:
        outcome.done(cell, result, computed=1)


def in_order(cells: Sequence[Cell]) -> list[Cell]:
    """One data set after another, and the first seed of all models before the second.

    So data are opened once, and two processes rarely time the steps of the same model at once.

    Args:
        cells: in any order.
    """
    names = {cell: DatasetCache.name(cell) for cell in cells}
    rank = {name: number for number, name in enumerate(dict.fromkeys(names.values()))}
    return sorted(names, key=lambda cell: (rank[names[cell]], cell.seed))


def title(cell: Cell) -> str:
    """A cell as progress and messages show it.

    Args:
        cell: to be named.
    """
    return f"{cell.experiment}, {cell.dataset}: {cell.label}, seed {cell.seed}"


def _follow_worker(cells: Sequence[Cell], store: Store, outcome: Outcome) -> None:
    """Start a worker process and record its events."""
    by_name = {cell.name: cell for cell in cells}
    current: Cell | None = None
    with subprocess.Popen(
        [*PYTHON, "-m", "stonet.experiments.runner", str(store.folder)],
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
                continue  # output of some library
            event = json.loads(line)
            cell, state = by_name[event["cell"]], event["state"]
            current = cell if state == "started" else None
            if state == "started":
                outcome.start(cell)
            elif state == "failed":
                outcome.fail(cell, event["message"], event["code"])
            elif (result := store.load(cell)) is not None:
                outcome.done(cell, result, event["computed"])
    if worker.returncode and current is not None:
        outcome.fail(current, f"Its process ended with code {worker.returncode}.", 5)


def main() -> None:
    """Work on the cells given on stdin, and print the events."""

    def print_event(cell: Cell, event: Event) -> None:
        print(json.dumps({"cell": cell.name} | event), flush=True)

    cells = [Cell.from_json(content) for content in json.load(sys.stdin)]
    store, outcome = Store(Path(sys.argv[1])), Outcome(on_event=print_event)
    work(cells, store, DatasetCache(), outcome, wait=False)


if __name__ == "__main__":
    main()
