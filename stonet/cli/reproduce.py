"""stonet reproduce: the experiments of the paper, and the results page."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stonet.cli.options import Json, Settings, split_names
from stonet.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from stonet.experiments.budgets import ExperimentBudget
    from stonet.experiments.cell import Cell

NAMES = ("comparison", "inductive", "irregular", "ablation", "cost")
RESULTS, SMOKE_RESULTS = Path("results"), Path("runs/smoke")


def reproduce(
    what: Annotated[
        str, typer.Argument(help=f"Experiment: {', '.join(NAMES)} or all; or page.")
    ] = "all",
    datasets: Annotated[
        str | None, typer.Option(help="Data: wave,wind-bhutan,..., data sets or files.")
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(help="Rows: stonet,stgcn,... or a group: all, baselines, references."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="Number of seeds of STONet, from 0; other models have at most the budget's."
        ),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(help="smoke (a minute), published, long, hour, or full (the paper's)."),
    ] = "published",
    minutes: Annotated[
        float | None,
        typer.Option(help="CPU minutes for each model, instead of the budget's."),
    ] = None,
    settings: Settings = None,
    jobs: Annotated[int, typer.Option(help="Number of processes, one thread each.")] = 1,
    results: Annotated[
        Path | None, typer.Option(help="Folder of results; default: results, runs/smoke for smoke.")
    ] = None,
    keep_stale: Annotated[
        bool, typer.Option("--keep-stale", help="Use stale results; tables name their commits.")
    ] = False,
    replay: Annotated[
        Path | None, typer.Option(help="Result file: compute its cell again and compare scores.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the paper's experiments cell by cell; stored results are not computed again."""
    folder = results or (SMOKE_RESULTS if budget == "smoke" else RESULTS)
    if replay is not None:
        _replay(replay, as_json)
    elif what == "page":
        _write_page(folder, as_json)
    elif what not in (*NAMES, "all"):
        raise unknown_name("experiment", what, [*NAMES, "all", "page"])
    else:
        from stonet.experiments.budgets import experiment_budget

        names = NAMES if what == "all" else (what,)
        if models and len(names) > 1:
            raise UsageError("--models selects rows of one experiment. Name it instead of 'all'.")
        if (seeds is not None and seeds < 1) or jobs < 1:
            raise UsageError(f"--seeds {seeds}, --jobs {jobs}; expected at least 1 of each.")
        limits = experiment_budget(budget).with_changes(minutes, tuple(settings or ()))
        cells = _cells(names, split_names(datasets), split_names(models), seeds, limits)
        _run(cells, folder, keep_stale, jobs, as_json)


def _cells(
    names: tuple[str, ...],
    datasets: list[str],
    models: list[str],
    seeds: int | None,
    budget: ExperimentBudget,
) -> dict[str, list[Cell]]:
    """The cells of each experiment; wrong names are refused here."""
    from stonet.experiments import EXPERIMENTS
    from stonet.experiments.datasets import check_name, is_local

    for dataset in datasets:
        check_name(dataset)
    cells = {}
    for name in names:
        chosen = datasets or list(budget.datasets_of(name))
        if budget.minimal and not datasets:  # a smoke test downloads nothing
            chosen = [dataset for dataset in chosen if is_local(dataset)]
        count = seeds or budget.seeds_of(name)
        cells[name] = EXPERIMENTS[name].cells(chosen, models, count, budget)
    return cells


def _run(
    cells: dict[str, list[Cell]], folder: Path, keep_stale: bool, jobs: int, as_json: bool
) -> None:
    """Compute cells, then print tables and draw; exit with the code of the first failure."""
    from stonet.cli.console import counting_bar, print_json, print_table, say, tidy_table
    from stonet.experiments import EXPERIMENTS
    from stonet.experiments.estimate import check_files, estimate_hours
    from stonet.experiments.runner import DatasetCache, run, title
    from stonet.experiments.store import Store
    from stonet.training.trained_model import versions

    started, store = time.monotonic(), Store(folder)
    every = [cell for group in cells.values() for cell in group]
    budgets = dict.fromkeys(str(cell.training) for cell in every)
    check_files(every)
    pending = [cell for cell in every if not store.path(cell).is_file()]
    with counting_bar("estimating", as_json) as bar:
        hours = estimate_hours(pending, DatasetCache(), bar)
    say(f"{len(every)} cells, {' or '.join(budgets)} each; {len(pending)} are not stored yet: "
        f"about {hours:.1f} hours of training with one process.", as_json)  # fmt: skip
    with counting_bar("reproducing", as_json) as bar:
        outcome = run(every, store, keep_stale, jobs, bar)
    tables: dict[str, list[dict[str, Any]]] = {}
    for name, group in cells.items():
        results = [outcome.results[cell] for cell in group if cell in outcome.results]
        if results:
            tables[name] = EXPERIMENTS[name].table(results)
            EXPERIMENTS[name].figure(results, folder / f"{name}.png")
    failed = [{"cell": title(cell), "error": why} for cell, why in outcome.failed.items()]
    seconds, count = time.monotonic() - started, len(outcome.results)
    if as_json:
        content = {"tables": tables, "cells": count, "computed": outcome.computed}
        facts = {"results": str(folder), "versions": versions(), "seconds": seconds}
        print_json(content | {"failed": failed} | facts)
    for name, lines in () if as_json else tables.items():
        print_table(tidy_table(lines, name, EXPERIMENTS[name].COLUMNS), min_width=120)
    for failure in failed:
        say(f"failed: {failure['cell']}: {failure['error']}", as_json)
    say(f"{outcome.computed} of {count} cells computed, {seconds:.0f} s; {folder}/.", as_json)
    if outcome.exit_code:
        raise typer.Exit(outcome.exit_code)


def _replay(path: Path, as_json: bool) -> None:
    """Compute a stored cell again with the same budget, and compare the scores."""
    from stonet.cli.console import print_json, print_table, say, tidy_table
    from stonet.experiments.runner import compare_scores, repeat, title
    from stonet.experiments.store import read_result

    before = read_result(path)
    after = repeat(before)
    lines = compare_scores(before, after)
    facts = ("data_hash", "settings", "versions")
    changed = [name for name in facts if getattr(before, name) != getattr(after, name)]
    if as_json:
        origin = {"cell": title(before.cell), "commit": before.commit, "date": before.date}
        print_json(origin | {"scores": lines, "changed": changed})
        return
    print_table(tidy_table(lines, title(before.cell)))
    say(f"Recorded at commit {before.commit}, {before.date}, in {before.seconds:.0f} s.")
    difference = f"Changed since: {', '.join(changed)}."
    say(difference if changed else "Same data, settings and versions.")


def _write_page(folder: Path, as_json: bool) -> None:
    """Write docs/results.md and its figures from the stored results."""
    from stonet.cli.console import print_json, say
    from stonet.experiments.report import write_page

    written = write_page(folder, Path("docs"))
    if as_json:
        print_json({"written": [str(path) for path in written]})
    say(f"Wrote {len(written)} files, {written[0]} first.", as_json)
