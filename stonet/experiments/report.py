"""docs/results.md: all results, from the files in results/ alone.

`stonet reproduce page` writes it. The cells of the published budget are looked up by name; missing
ones are counted and shown as dashes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from stonet.errors import UsageError
from stonet.experiments import EXPERIMENTS
from stonet.experiments.budgets import EXPERIMENT_BUDGETS, ExperimentBudget
from stonet.experiments.cell import Result
from stonet.experiments.claims import claims_of, claims_section
from stonet.experiments.datasets import experiment_data
from stonet.experiments.estimate import estimate_hours
from stonet.experiments.overview import overview_section
from stonet.experiments.report_comparison import curve_section, longer_section
from stonet.experiments.report_tables import CHAPTERS
from stonet.experiments.runner import DatasetCache
from stonet.experiments.store import Store
from stonet.experiments.tables import DASH, markdown_table
from stonet.models.registry import REFERENCE_FORECASTS

PUBLISHED, LONG, HOUR = (EXPERIMENT_BUDGETS[name] for name in ("published", "long", "hour"))
ONLY = ("comparison",)  # the experiment of the budgets with more time
MAX_STALE_NAMES = 20
FIGURES = {
    "comparison": {
        "": "MAE of all models, the best at the top; bars span the seeds.",
        "-ranks": "Mean ranks; bars join models that are not significantly different.",
        "-leads": "MAE by lead time.",
        "-hours": "MAE by hour of the day; windows start at all hours in turn.",
        "-maps": "MAE by point: STONet and the best baseline, on one scale.",
    },
    "inductive": {"": "Points that training never saw; dashed lines are the goals."},
    "irregular": {"": "Cost of missing labels and missing inputs; dashed lines are the goals."},
    "ablation": {"": "One setting at a time, of the three networks."},
    "cost": {"": "Time, memory and error of the decoders."},
}
INTRO = (
    "Made by `stonet reproduce page` from the files in `results/`; do not edit. Every number comes "
    "from a cell: one training of a model on one data set, with one seed and setting. `stonet "
    "reproduce --replay results/.../CELL.json` computes a cell again with the same budget "
    "and prints both scores; `stonet reproduce all --jobs 2` computes missing and stale cells."
)
PROTOCOL = (
    "Scores are those of the test part (the last 20 % of the times or episodes), every target "
    "about once, from windows that start at every hour of the day (128 windows in the irregular "
    "experiment), in physical units; ± is the standard deviation over the seeds. Normalisation, "
    "graph and early stopping use the training and validation parts only. MAPE leaves out zero "
    "targets; all other metrics include them."
)


def page(store: Store, budget: ExperimentBudget = PUBLISHED) -> str:
    """The text of docs/results.md.

    Args:
        store: of the results.
        budget: of the cells that are shown.
    """
    loaded = {name: _load(store, name, budget) for name in EXPERIMENTS}
    tables = {name: EXPERIMENTS[name].table(results) for name, (results, _) in loaded.items()}
    longer, _ = _load(store, "comparison", LONG)
    curves, _ = _load(store, "comparison", HOUR)
    tables["longer"] = EXPERIMENTS["comparison"].table(longer)
    claims = claims_of(tables, len(budget.datasets), len(budget.ablation_datasets))
    text = ["# Results", "", INTRO, "", *_protocol(budget)]
    text += _provenance(
        [result for results, _ in loaded.values() for result in results],
        expected=sum(count for _, count in loaded.values()),
    )
    counts = {name: (len(results), count) for name, (results, count) in loaded.items()}
    text += ["## The paper's experiments", "", *overview_section(counts)]
    text += ["## Do the claims hold?", "", *claims_section(claims, budget.datasets)]
    text += ["[Decisions](decisions.md) lists what was tried where a goal is missed.", ""]
    for name, (results, expected) in loaded.items():
        text += [f"## {name.capitalize()}", ""]
        text += [f"`stonet reproduce {name}`: {_count(results, expected)}.", ""]
        if tables[name]:
            text += CHAPTERS[name](tables[name], results, budget.datasets)
            text += _figures(name, results)
        if name == "comparison" and tables["longer"]:
            text += longer_section(tables["longer"], LONG, _origin(longer))
        if name == "comparison" and curves:
            text += curve_section(curves, HOUR)
    return "\n".join(text).rstrip() + "\n"


def write_page(folder: Path, docs: Path) -> list[Path]:
    """Write results.md and its figures.

    Args:
        folder: of the results.
        docs: existing folder to write into.

    Returns:
        The files written, the page first.
    """
    if not docs.is_dir():
        raise UsageError(f"No folder '{docs}'. Run this from the repository's root.")
    store = Store(folder)
    for earlier in (docs / "figures").glob("results-*.png"):
        earlier.unlink()
    for name, experiment in EXPERIMENTS.items():
        results, _ = _load(store, name, PUBLISHED)
        if experiment.table(results):
            experiment.figure(results, docs / "figures" / f"results-{name}.png")
    target = docs / "results.md"
    target.write_text(page(store), encoding="utf-8")
    return [target, *sorted((docs / "figures").glob("results-*.png"))]


def _load(
    store: Store, name: str, budget: ExperimentBudget, models: Sequence[str] = ()
) -> tuple[list[Result], int]:
    """The stored results of an experiment, stale ones marked, and how many there should be."""
    datasets, seeds = budget.datasets_of(name), budget.seeds_of(name)
    cells = EXPERIMENTS[name].cells(datasets, models, seeds, budget)
    stored = [result for cell in cells if (result := store.load(cell))]
    return [replace(r, stale=r.is_stale(r.data_hash)) for r in stored], len(cells)


def _hours() -> float:
    """CPU hours of training of all cells of the page."""
    cells = [
        cell
        for budget, names in ((PUBLISHED, tuple(EXPERIMENTS)), (LONG, ONLY), (HOUR, ONLY))
        for name in names
        for cell in EXPERIMENTS[name].cells(
            budget.datasets_of(name), (), budget.seeds_of(name), budget
        )
    ]
    return estimate_hours([c for c in cells if c.model not in REFERENCE_FORECASTS], DatasetCache())


def _commits(results: Iterable[Result]) -> str:
    """Commits with their number of cells, the most frequent first."""
    counts = Counter(result.commit for result in results).most_common()
    return ", ".join(f"`{commit}` ({count})" for commit, count in counts)


def _origin(results: Sequence[Result]) -> str:
    """How many cells, computed at which commits, and how many of them are stale."""
    stale = sum(result.stale for result in results)
    suffix = f"; **{stale} of them are stale**" if stale else ""
    return f"{len(results)} cells, by commit: {_commits(results)}{suffix}."


def _protocol(budget: ExperimentBudget) -> list[str]:
    """Budget, protocol and data."""
    limits = [s.partition("=")[2] for s in budget.settings if s.startswith("read.points=")]
    points = f"at most {limits[-1]} points" if limits else "all points"
    rows = [
        [name, data.title, data.paper or DASH, data.unit]
        for name, data in ((name, experiment_data(name)) for name in budget.datasets)
    ]
    return [
        f"Budget `{budget.name}`: {budget.training} for each training on one thread, {points}, "
        f"{budget.seeds} seeds of `stonet` and `stonet-operator` in the comparison and one "
        f"elsewhere. All cells of this page are {_hours():.0f} CPU hours of training. {PROTOCOL}",
        "",
        *markdown_table(["data set", "content", "corresponds to the paper's", "errors in"], rows),
    ]


def _provenance(results: Sequence[Result], expected: int) -> list[str]:
    """Missing and stale cells, commits, hours, machines."""
    text = []
    if len(results) < expected:
        missing = f"**{expected - len(results)} of {expected} cells are not computed yet**"
        text += [f"{missing}; dashes below.", ""]
    stale = [result for result in results if result.stale]
    if stale:
        labels = sorted({f"{r.cell.experiment} {r.cell.label}" for r in stale})[:MAX_STALE_NAMES]
        reason = f"**{len(stale)} cells are stale (another version or other settings)**"
        text += [f"{reason}: {', '.join(labels)}.", ""]
    if results:
        hours = sum(result.seconds for result in results) / 3600
        cores = sorted({str(result.machine["cores"]) for result in results})
        torch = sorted({result.versions["torch"] for result in results})
        text += [
            f"Commits that computed the cells (number of cells): {_commits(results)}; `+` marks "
            "uncommitted changes. A cell is stale if settings, data or the version of stonet have "
            "changed. Other changes of the code are not detected: where the commit is not the "
            "newest, `--replay` tells whether they matter. "
            f"{hours:.1f} hours in total, on machines with {', '.join(cores)} cores, torch "
            f"{', '.join(torch)}.",
            "",
        ]
    return text


def _count(results: Sequence[Result], expected: int) -> str:
    """How many cells there are, which commits computed them, and what cannot be run."""
    skipped = [r.cell for r in results if "skipped" in r.scores]
    names = sorted({f"{cell.label} on {cell.dataset}" for cell in skipped})
    origin = f", computed at {_commits(results)}" if results else ""
    suffix = f"; not possible: {', '.join(names)}" if names else ""
    return f"{len(results)} of {expected} cells{origin}{suffix}"


def _figures(name: str, results: Sequence[Result]) -> list[str]:
    """Links to the figures of an experiment, with captions."""
    hours = any(result.scores.get("by_hour") for result in results)
    ranked = len({result.cell.dataset for result in results}) > 1
    text = []
    for suffix, caption in FIGURES[name].items():
        if (suffix != "-hours" or hours) and (suffix != "-ranks" or ranked):
            text += [f"![{caption}](figures/results-{name}{suffix}.png)", "", f"*{caption}*", ""]
    return text
