"""stonet reproduce."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stonet.cli.options import Json, Settings
from stonet.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from stonet.experiments.budgets import ExperimentBudget
    from stonet.experiments.cell import Cell, Result

WHAT = ("comparison", "inductive", "irregular", "ablation", "cost")
RESULTS, SMOKE = Path("results"), Path("runs/smoke")


def reproduce(
    what: Annotated[str, typer.Argument(help=f"{', '.join(WHAT)}, all; or page.")] = "all",
    datasets: Annotated[
        str | None, typer.Option(help="wave,wind-bhutan,...: tasks, data sets or files.")
    ] = None,
    models: Annotated[
        str | None, typer.Option(help="stonet,stgcn+base,...: only these rows.")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="How many, from 0 on; reference forecasts and baselines on the base have the first."
        ),
    ] = None,
    budget: Annotated[
        str, typer.Option(help="smoke (a minute), small or long (published), full (the paper's).")
    ] = "small",
    minutes: Annotated[
        float | None, typer.Option(help="Of training for each model, instead of the budget's.")
    ] = None,
    settings: Settings = None,
    jobs: Annotated[int, typer.Option(help="Processes, one thread each.")] = 1,
    results: Annotated[
        Path | None, typer.Option(help="Where cells are kept; results/, for smoke runs/smoke/.")
    ] = None,
    keep_stale: Annotated[
        bool, typer.Option("--keep-stale", help="Use cells of other versions or data, and say so.")
    ] = False,
    replay: Annotated[
        Path | None, typer.Option(help="A cell's file: compute it again, beside what it says.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the paper's experiments, cell by cell; what is there already is not computed again."""
    folder = results or (SMOKE if budget == "smoke" else RESULTS)
    if replay is not None:
        _replay(replay, as_json)
    elif what == "page":
        _page(folder, as_json)
    elif what not in (*WHAT, "all"):
        raise unknown_name("experiment", what, [*WHAT, "all", "page"])
    else:
        wanted = WHAT if what == "all" else (what,)
        if models and len(wanted) > 1:
            raise UsageError("--models are the rows of one experiment. Name it instead of 'all'.")
        if (seeds is not None and seeds < 1) or jobs < 1:
            raise UsageError(f"--seeds {seeds}, --jobs {jobs}; expected at least 1 of each.")
        cells = _cells(wanted, datasets, models, seeds, _effort(budget, minutes, settings), as_json)
        _run(cells, folder, keep_stale, jobs, as_json)


def _effort(budget: str, minutes: float | None, settings: list[str] | None) -> ExperimentBudget:
    from stonet.experiments.budgets import experiment_budget

    return experiment_budget(budget).changed(minutes, tuple(settings or ()))


def _cells(
    wanted: tuple[str, ...],
    datasets: str | None,
    models: str | None,
    seeds: int | None,
    effort: ExperimentBudget,
    quiet: bool,
) -> dict[str, list[Cell]]:
    """What must be known, by experiment; a wrong name is refused here."""
    from stonet.cli.console import say
    from stonet.experiments import EXPERIMENTS
    from stonet.experiments.datasets import at_hand, check_task

    asked = _names(datasets)
    for name in asked:
        check_task(name)
    found = {}
    for experiment in wanted:
        tasks = asked or list(effort.datasets_of(experiment))
        if effort.few and not asked:  # a first look needs no download
            tasks = [name for name in tasks if at_hand(name)]
        rows, many = _names(models), seeds or effort.seeds_of(experiment)
        found[experiment] = EXPERIMENTS[experiment].cells(tasks, rows, many, effort)
    every = [cell for cells in found.values() for cell in cells]
    budgets = dict.fromkeys(str(cell.training) for cell in every)
    say(f"{len(every)} cells, {' or '.join(budgets)} each.", quiet)
    return found


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _run(
    cells: dict[str, list[Cell]], folder: Path, keep_stale: bool, jobs: int, as_json: bool
) -> None:
    """Compute, then tables and figures; the exit code is that of the first failure."""
    from stonet.cli.console import counting_bar, print_json, print_table, say, tidy_table
    from stonet.experiments import EXPERIMENTS
    from stonet.experiments.runner import run, title
    from stonet.experiments.store import Store
    from stonet.training.trained_model import versions

    started, store = time.monotonic(), Store(folder)
    with counting_bar("reproducing", as_json) as bar:
        told = run([c for some in cells.values() for c in some], store, keep_stale, jobs, bar)
    tables: dict[str, list[dict[str, Any]]] = {}
    for experiment, asked in cells.items():
        found: list[Result] = [told.found[cell] for cell in asked if cell in told.found]
        if found:
            tables[experiment] = EXPERIMENTS[experiment].table(found)
            EXPERIMENTS[experiment].figure(found, folder / f"{experiment}.png")
    failed = [{"cell": title(cell), "error": why} for cell, why in told.failed.items()]
    seconds = time.monotonic() - started
    if as_json:
        known = {"cells": len(told.found), "computed": told.computed, "failed": failed}
        facts = {"results": str(folder), "versions": versions(), "seconds": seconds}
        print_json({"tables": tables} | known | facts)
    for experiment, lines in () if as_json else tables.items():
        columns = getattr(EXPERIMENTS[experiment], "COLUMNS", ())
        print_table(tidy_table(lines, experiment, columns), least=120)
    for failure in failed:
        say(f"failed: {failure['cell']}: {failure['error']}", as_json)
    say(
        f"{told.computed} of {len(told.found)} cells computed, {seconds:.0f} s; {folder}/.", as_json
    )
    if told.exit_code:
        raise typer.Exit(told.exit_code)


def _replay(path: Path, as_json: bool) -> None:
    """One cell again, with as many steps as then."""
    from stonet.cli.console import print_json, print_table, say, tidy_table
    from stonet.experiments.runner import beside, repeat, title
    from stonet.experiments.store import read_result

    before = read_result(path)
    after = repeat(before)
    lines = beside(before, after)
    hashes = ("data_hash", "config_hash", "versions")
    differ = [name for name in hashes if getattr(before, name) != getattr(after, name)]
    if as_json:
        known = {"cell": title(before.cell), "commit": before.commit, "date": before.date}
        print_json(known | {"scores": lines, "changed": differ})
        return
    print_table(tidy_table(lines, title(before.cell)))
    say(f"Recorded at commit {before.commit}, {before.date}, in {before.seconds:.0f} s.")
    say(
        f"Changed since then: {', '.join(differ)}."
        if differ
        else "Same data, settings and versions."
    )


def _page(folder: Path, as_json: bool) -> None:
    """docs/results.md and its figures, from what is kept."""
    from stonet.cli.console import print_json, say
    from stonet.experiments.report import write_page

    written = write_page(folder, Path("docs"))
    if as_json:
        print_json({"written": [str(path) for path in written]})
    say(f"Wrote {len(written)} files, {written[0]} first.", as_json)
