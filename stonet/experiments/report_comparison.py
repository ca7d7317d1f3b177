"""The chapter of docs/results.md on the comparison, in the layout of the paper's Table 3."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from stonet.experiments import paper_tables
from stonet.experiments.budgets import ExperimentBudget
from stonet.experiments.cell import Result
from stonet.experiments.comparison import MIN_WINDOWS, OPERATOR, OURS, PAPER, ranks
from stonet.experiments.datasets import experiment_data
from stonet.experiments.tables import (
    DASH,
    Column,
    Line,
    change,
    dataset_and_unit,
    error,
    markdown_table,
    measured,
    number,
    p_value,
    pivot,
    table,
    text,
    unit_headings,
)
from stonet.models.registry import BASELINES, REFERENCE_FORECASTS

ORDER = (*REFERENCE_FORECASTS, *BASELINES, PAPER, OPERATOR, OURS)
COST_NOTE = (
    "Steps of the training, and its CPU seconds including closed forms, a race of settings and "
    "validation; the budget is watched while a model trains. Rivals race for width, learning rate "
    "and length of the past within their budget, and know the calendar, the place and the sun as "
    "far as their architecture can take them. `stonet` is what `fit` gives by default, with "
    "reference forecasts where validation favours them (`train.fallback`); all other rows are "
    "networks alone. STONet's settings were chosen on the validation parts of these data sets "
    "([decisions](decisions.md))."
)
FEEDBACK_NOTE = (
    "MAE of the same forecasts, corrected by each model's own recent errors as `predict` does, "
    "and in brackets the coverage of its 90 % intervals in percent."
)
RANKS_NOTE = (
    "Mean rank by MAE over {tasks} data sets of the models that were measured on all of them; two "
    "models differ significantly if their ranks differ by more than {difference:.1f} (Friedman "
    "test, p {p}; critical difference of Nemenyi)."
)
CURVE_NOTE = (
    "`stonet reproduce comparison --budget {name}`: {training} of `stonet-paper`, validation "
    "error (normalised) by step. A power law, fitted to the second half of the curve, extrapolates "
    "to ten times the steps."
)
PAPER_NOTE = (
    "The data differ from the paper's, and so do the errors; what can be compared is the gain of "
    "STONet over the best other model. Here the others include reference forecasts, which the "
    "paper lacks. `p`: paired block bootstrap over test windows, two-sided, for each data set "
    f"separately, with at least {MIN_WINDOWS} windows."
)
PAPER_COLUMNS = {
    "data set": dataset_and_unit,
    "paper's data": text("paper"),
    "paper: STONet": text("paper_mae"),
    "paper: best baseline": text("paper_best"),
    "paper: gain": change("paper_gain"),
    "here: STONet": error("mae"),
    "here: best other": text("best_other"),
    "here: gain": change("improvement"),
    "windows": text("windows"),
    "p": lambda line: p_value(line.get("p")),
}
POINT_COLUMNS = {
    "data set": dataset_and_unit,
    "MAE": error("mae"),
    "bias": error("bias"),
    "MAPE (%)": lambda line: number(line.get("mape")),
    "median point": error("median"),
    "90 % of points below": error("p90"),
    "worst point": error("max"),
}
WORST_COLUMNS = {
    "data set": dataset_and_unit,
    "MAE at the five worst points (latitude, longitude or x, y)": text("worst"),
}


def comparison_chapter(
    lines: Sequence[Line], results: Sequence[Result], datasets: Sequence[str]
) -> list[str]:
    """Errors and costs of every model; STONet's gain, corrected linear forecasts, worst points.

    Args:
        lines: of the table of the comparison.
        results: from which the lines were made.
        datasets: in the order of the report.
    """
    first = {r.cell.dataset: r for r in measured(results) if _is_first(r)}
    summary = [_summary(lines, first.get(name), name) for name in datasets]
    return [
        *("### Test MAE", "", *_ranked(lines, datasets, "mae")),
        *("### Test RMSE", "", *_ranked(lines, datasets, "rmse")),
        *("### Test MAPE (%)", "", *_by_model(lines, datasets, lambda x: number(x["mape"]))),
        *_ranks(lines),
        *("### With feedback of recent errors", "", FEEDBACK_NOTE, ""),
        *_by_model(lines, datasets, _feedback),
        *("### Steps and seconds", "", COST_NOTE, ""),
        *_by_model(lines, datasets, _cost),
        *("### Comparison with the paper", "", PAPER_NOTE, "", *table(PAPER_COLUMNS, summary)),
        *("### Bias, relative error and error by point of STONet", ""),
        *table(POINT_COLUMNS, summary),
        *("### Worst points of STONet", ""),
        *table(WORST_COLUMNS, [line for line in summary if "worst" in line]),
    ]


def longer_section(lines: Sequence[Line], budget: ExperimentBudget, origin: str) -> list[str]:
    """The same models with more time.

    Args:
        lines: of the comparison with this budget.
        budget: of each training.
        origin: sentence on the commits that computed them.
    """
    command = f"stonet reproduce comparison --budget {budget.name}"
    return [
        *("### With more time", ""),
        f"`{command}`: {budget.training} for each training, one seed. {origin} Test MAE:",
        *("", *_ranked(lines, budget.datasets, "mae")),
        *("Steps taken in that time:", ""),
        *_by_model(lines, budget.datasets, lambda line: number(line["steps"])),
    ]


def curve_section(results: Sequence[Result], budget: ExperimentBudget) -> list[str]:
    """Learning curves of the paper's network, with their extrapolation.

    Args:
        results: of the budget `hour`, with their history.
        budget: of these trainings.
    """
    rows = []
    for result in results:
        points = [
            (entry["step"], entry["validation"])
            for entry in result.scores["history"]
            if entry.get("validation") is not None
        ]
        shown = [points[(len(points) - 1) * i // 4] for i in range(5)]
        curve = ", ".join(f"{step}: {error:.4g}" for step, error in shown)
        slope, end = _power_law(points)
        row = [result.cell.dataset, number(result.scores["mae"], result.cell.dataset), curve]
        rows.append([*row, f"{slope:.2f}", f"{end:.4g}"])
    note = CURVE_NOTE.format(name=budget.name, training=budget.training)
    head = ["data set", "test MAE", "step: validation error", "exponent", "at ten times the steps"]
    return [
        "### The learning curve of the paper's network",
        "",
        note,
        "",
        *markdown_table(head, rows),
    ]


def _power_law(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """The exponent of error ~ step^exponent in the second half, and the error at ten times."""
    half = np.log(np.array(points[len(points) // 2 :], dtype=np.float64))
    if len(half) < 2 or np.ptp(half[:, 0]) == 0:
        return math.nan, math.nan
    slope, offset = np.polyfit(half[:, 0], half[:, 1], 1)
    return float(slope), float(np.exp(offset + slope * (half[-1, 0] + np.log(10))))


def _ranks(lines: Sequence[Line]) -> list[str]:
    """Mean ranks of all models; nothing where too few were measured."""
    found = ranks(lines)
    if found is None:
        return []
    note = RANKS_NOTE.format(tasks=found.tasks, difference=found.difference, p=p_value(found.p))
    rows = [[model, f"{value:.2f}"] for model, value in found.ranks.items()]
    return ["### Ranks", "", note, "", *markdown_table(["model", "mean rank"], rows)]


def _feedback(line: Line) -> str:
    """The MAE with feedback, and the coverage of 90 % intervals."""
    if line["coverage_90"] is None:
        return DASH
    return f"{number(line['feedback_mae'], line['dataset'])} ({100 * line['coverage_90']:.0f})"


def _by_model(lines: Sequence[Line], datasets: Sequence[str], cell: Column) -> list[str]:
    """A table of trained models by data sets."""
    trained = [line for line in lines if line["model"] not in REFERENCE_FORECASTS]
    cells = {((x["model"],), x["dataset"]): cell(x) for x in sorted(trained, key=_rank)}
    return pivot(["model"], {name: name for name in datasets}, cells)


def _cost(line: Line) -> str:
    """Steps and, where they were recorded, CPU seconds."""
    seconds = line["cpu_seconds"]
    return f"{line['steps']:.0f}" + ("" if seconds is None else f" ({seconds:.0f} s)")


def _rank(line: Line) -> int:
    """The position of a line's model in the tables."""
    return ORDER.index(line["model"])


def _ranked(lines: Sequence[Line], datasets: Sequence[str], metric: str) -> list[str]:
    """Errors of every model; on each data set the best in bold, the second in italics."""
    cells = {((x["model"],), x["dataset"]): error(metric)(x) for x in sorted(lines, key=_rank)}
    for name in datasets:
        ranking = sorted((x[metric], x["model"]) for x in lines if x["dataset"] == name)
        for (_, model), mark in zip(ranking, ("**", "*"), strict=False):
            cells[(model,), name] = f"{mark}{cells[(model,), name]}{mark}"
    return pivot(["model"], unit_headings(datasets), cells)


def _is_first(result: Result) -> bool:
    """Whether this is STONet's first seed, whose errors by point are shown."""
    return (result.cell.label, result.cell.seed) == (OURS, 0)


def _summary(lines: Sequence[Line], result: Result | None, name: str) -> Line:
    """STONet's line of one data set, with the best other models and the paper's numbers."""
    mae = {line["model"]: line["mae"] for line in lines if line["dataset"] == name}

    def best(*models: str) -> str:
        ranking = sorted((mae[model], model) for model in models if model in mae)
        return f"{number(ranking[0][0], name)} ({ranking[0][1]})" if ranking else DASH

    ours = (x for x in lines if (x["dataset"], x["model"]) == (name, OURS))
    line: Line = {"dataset": name} | next(ours, {})
    line |= {
        "linear": mae.get("linear"),
        "best_baseline": best(*BASELINES),
        "best_other": best(line.get("second", "")),
    }
    paper = experiment_data(name).paper
    if paper is not None:
        model, their_best = paper_tables.best_baseline(paper)
        published = paper_tables.COMPARISON[paper, paper_tables.OURS][0]
        line |= {
            "paper": paper,
            "paper_mae": f"{published:.4g} ({paper_tables.UNITS[paper]})",
            "paper_best": f"{their_best:.4g} ({model})",
            "paper_gain": paper_tables.improvement(paper),
        }
    if result is not None:
        points = (
            f"{number(point['mae'], name)} at {', '.join(f'{x:.4g}' for x in point['at'])}"
            for point in result.scores["worst"]
        )
        line |= result.scores["spread"] | {"worst": "; ".join(points)}
    return line
