"""docs/results.md: everything that was found, from the files in results/ and nothing else.

`stonet reproduce page` writes it anew. It asks for the cells of the published budget by name; what
is not there is counted and shown as a dash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stonet.errors import UsageError
from stonet.experiments import EXPERIMENTS
from stonet.experiments.budgets import EXPERIMENT_BUDGETS, ExperimentBudget
from stonet.experiments.cell import Cell, Result
from stonet.experiments.claims import claims_of
from stonet.experiments.datasets import task_of
from stonet.experiments.markdown import DASH, grid
from stonet.experiments.report_comparison import LONGER, PARTS, on_longer
from stonet.experiments.report_tables import CHAPTERS
from stonet.experiments.store import Store

PUBLISHED, LONG = "small", "long"
MOST = 20  # kinds of old cells that are named
FIGURES = {
    "comparison": {
        "": "All models, the best at the top; bars span the seeds.",
        "-leads": "Error by lead time.",
        "-hours": "Error by hour of the day; windows start at all hours in turn.",
        "-maps": "Where the errors are: STONet and the best baseline, on one scale.",
    },
    "inductive": {"": "Points that training never saw."},
    "irregular": {"": "What missing labels and missing inputs cost."},
    "ablation": {"": "One setting at a time, of the operator by itself and of the default."},
    "cost": {"": "What the decoders take, and what they give."},
}
INTRO = (
    "Made by `stonet reproduce page` from the files in `results/`; do not edit. Every number comes "
    "from a cell (model, data, seed, setting) that one command computes again: `stonet reproduce "
    "--replay results/.../CELL.json`, with as many steps as then, prints both scores. `stonet "
    "reproduce all --jobs 2` computes what is missing or stale."
)
TASKS = (
    "Test part (the last 20 % of the times, or episodes), every target once (128 windows in the "
    "irregular part), physical units; ± is the standard deviation over the seeds; "
    "normalisation, graph and stopping know the training and validation parts only. MAPE leaves "
    "out zero targets, nothing else does."
)


def page(store: Store, effort: ExperimentBudget = EXPERIMENT_BUDGETS[PUBLISHED]) -> str:
    """The page's text."""
    found, asked = {}, {}
    for name, experiment in EXPERIMENTS.items():
        cells = experiment.cells(effort.datasets_of(name), (), effort.seeds_of(name), effort)
        found[name], asked[name] = _load(store, cells), len(cells)
    tables = {name: EXPERIMENTS[name].table(results) for name, results in found.items()}
    longer = {
        name: _longer(store, name, rows)
        for name, rows in (("comparison", LONGER), ("ablation", PARTS))
    }
    tables["longer"] = EXPERIMENTS["comparison"].table(longer["comparison"])
    claims = claims_of(tables, effort.tasks, len(effort.ablated))
    text = ["# Results", "", INTRO, ""]
    text += _about(found, asked, effort)
    text += ["## Do the claims hold?", ""]
    text += grid(["claim", "goal", "measured", "verdict"], [claim.row() for claim in claims])
    text += [line for claim in claims if claim.values for line in (claim.paragraph(), "")]
    text += ["What was tried where a goal is missed: [decisions](decisions.md).", ""]
    for name in EXPERIMENTS:
        text += [f"## {name.capitalize()}", ""]
        text += [f"`stonet reproduce {name}`: {_count(found[name], asked[name])}.", ""]
        if tables[name]:
            text += CHAPTERS[name](tables[name], found[name], list(effort.tasks))
            text += _figures(name, found[name])
        if name == "comparison" and tables["longer"]:
            ablated = EXPERIMENTS["ablation"].table(longer["ablation"])
            made = _made([result for some in longer.values() for result in some])
            text += on_longer(tables["longer"], ablated, EXPERIMENT_BUDGETS[LONG], made)
    return "\n".join(text).rstrip() + "\n"


def write_page(folder: Path, docs: Path) -> list[Path]:
    """The page and its figures; the paths that were written, the page first."""
    if not docs.is_dir():
        raise UsageError(f"No folder '{docs}'. The page is written from the repository's root.")
    store, effort = Store(folder), EXPERIMENT_BUDGETS[PUBLISHED]
    for name, experiment in EXPERIMENTS.items():
        cells = experiment.cells(effort.datasets_of(name), (), effort.seeds_of(name), effort)
        results = _load(store, cells)
        if experiment.table(results):
            (docs / "figures").mkdir(parents=True, exist_ok=True)
            experiment.figure(results, docs / "figures" / f"results-{name}.png")
    target = docs / "results.md"
    target.write_text(page(store), encoding="utf-8")
    return [target, *sorted((docs / "figures").glob("results-*.png"))]


def _longer(store: Store, name: str, rows: Sequence[str]) -> list[Result]:
    """What is known of these rows with more time."""
    effort, experiment = EXPERIMENT_BUDGETS[LONG], EXPERIMENTS[name]
    cells = experiment.cells(effort.datasets_of(name), rows, effort.seeds_of(name), effort)
    return _load(store, cells)


def _load(store: Store, cells: Sequence[Cell]) -> list[Result]:
    """The stored results; stale are those of another version or other settings."""
    found = [result for cell in cells if (result := store.load(cell))]
    return [replace(r, stale=r.key != r.cell.key(r.data_hash)) for r in found]


def _made(results: Sequence[Result]) -> str:
    """At which commits, and how many of them by another version or with other settings."""
    commits = ", ".join(f"`{commit}`" for commit in dict.fromkeys(r.commit for r in results))
    old = sum(result.stale for result in results)
    text = f"{len(results)} cells, computed at {commits}"
    return text + (f"; **{old} of them stale**." if old else ".")


def _about(
    found: dict[str, list[Result]], asked: dict[str, int], effort: ExperimentBudget
) -> list[str]:
    """What was done: budget, data, machines, commits; and what is not there yet."""
    results = [result for some in found.values() for result in some]
    there, total = len(results), sum(asked.values())
    text = [
        f"Budget `{effort.name}`: {effort.training} for each training on one thread, at most "
        f"{_points(effort)} points, {effort.seeds} seeds in the comparison (one for baselines on the "
        "base) and one elsewhere; ablations have a number of steps instead. " + TASKS,
        "",
        *grid(
            ["task", "data", "stands for the paper's", "errors in"],
            [
                [name, task_of(name).title, task_of(name).paper or DASH, task_of(name).unit]
                for name in effort.tasks
            ],
        ),
    ]
    if there < total:
        text += [f"**{total - there} of {total} cells are not computed yet**; dashes below.", ""]
    old = [result for result in results if result.stale]
    if old:
        made = ", ".join(sorted({f"{r.cell.experiment} {r.cell.label}" for r in old})[:MOST])
        text += [f"**{len(old)} cells are stale (another version or other settings)**: {made}.", ""]
    commits = Counter(result.commit for result in results).most_common()
    if commits:
        told = ", ".join(f"`{one}` ({count} cells)" for one, count in commits)
        hours = sum(result.seconds for result in results) / 3600
        cores = sorted({result.machine["cores"] for result in results})
        torch = sorted({result.versions["torch"] for result in results})
        text += [
            f"Cells by the commit whose code computed them: {told}; `+` is one with changes. "
            f"{hours:.1f} hours in all, on machines with "
            f"{', '.join(map(str, cores))} cores, torch {', '.join(torch)}.",
            "",
        ]
    return text


def _points(effort: ExperimentBudget) -> str:
    limits = [s.partition("=")[2] for s in effort.settings if s.startswith("read.points=")]
    return limits[-1] if limits else "all"


def _count(results: Sequence[Result], asked: int) -> str:
    skipped = [r for r in results if "skipped" in r.scores]
    text = f"{len(results)} of {asked} cells"
    if skipped:
        names = sorted({f"{r.cell.label} on {r.cell.dataset}" for r in skipped})
        text += f"; not possible: {', '.join(names)}"
    return text


def _figures(name: str, results: Sequence[Result]) -> list[str]:
    hours = any(result.scores.get("by_hour") for result in results)
    shown = {s: told for s, told in FIGURES[name].items() if s != "-hours" or hours}
    text = []
    for suffix, caption in shown.items():
        text += [f"![{caption}](figures/results-{name}{suffix}.png)", "", f"*{caption}*", ""]
    return text
