"""The chapter of docs/results.md on the comparison, in the layout of the paper's Table 3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stonet.experiments import comparison, paper_tables
from stonet.experiments.budgets import ExperimentBudget
from stonet.experiments.cell import Result
from stonet.experiments.datasets import task_of
from stonet.experiments.markdown import DASH, grid, heads, likely, percent, shown
from stonet.models.registry import BASELINES, REFERENCE_FORECASTS

Line = dict[str, Any]
OURS = comparison.OURS
LONGER = (OURS, "baselines", "references")  # rows that are asked for with more time
TOOK = (
    "Steps, and seconds of the training with closed forms, schooling and validation. Minutes "
    "become steps by timing some of them first, while the machine's other core works as well, so "
    "that what they really take differs. Baselines look back 12 steps and know "
    "the phases of day and year; STONet, the linear base and `daily` look back a day where that is "
    "13 to 48 steps, and know the sun. STONet's settings were chosen on these tasks "
    "([decisions](decisions.md)), the baselines' are published ones."
)
PARTS = ("residual_width", "consecutive")  # and factors of the ablation
ORDER = (
    *REFERENCE_FORECASTS,
    *BASELINES,
    *comparison.BASED,
    comparison.PAPER,
    OURS,
)


def on_comparison(lines: Sequence[Line], results: Sequence[Result], tasks: list[str]) -> list[str]:
    """MAE and RMSE of every model, what the paper says, what the base does, and where it errs."""
    by = {(line["dataset"], line["model"]): line for line in lines}
    text = []
    for metric in ("mae", "rmse"):
        text += [f"### Test {metric.upper()}", "", *_ranked(by, tasks, metric)]
    text += ["### What it took", "", TOOK, "", *_took(by, tasks)]
    text += ["### Beside the paper", ""]
    text += [
        "The data differ, so the errors do; what can be set side by side is how far STONet lies "
        "below the best other model. Ours counts reference forecasts as others, the paper's has none. `p`: "
        f"paired block bootstrap over test windows, two-sided, from {comparison.ENOUGH} windows "
        "on; each task by itself.",
        "",
        *grid(
            [
                "task",
                "paper's data",
                "paper: STONet",
                "best baseline",
                "improvement",
                "ours: STONet",
                "best other",
                "improvement",
                "windows",
                "p",
            ],
            [_beside_paper(by, task) for task in tasks],
        ),
    ]
    text += ["### Whose gain is it: STONet's own or the base's?", ""]
    head = ["task", "linear base alone", "best baseline", "best baseline on the base", "STONet"]
    text += grid(head, [_whose(by, task) for task in tasks])
    text += ["### Bias and relative error of STONet", ""]
    head = ["task", "MAE", "bias", "MAPE %", "median point", "90 % of points below", "worst point"]
    ours = {r.cell.dataset: r for r in results if _is_ours(r)}
    text += grid(head, [_spread(by, ours.get(task), task) for task in tasks])
    text += ["### Its worst points", ""]
    rows = [_worst(ours[task], task) for task in tasks if task in ours]
    return text + grid(["task", "MAE at the five worst points (latitude, longitude or x, y)"], rows)


def on_longer(
    lines: Sequence[Line], ablated: Sequence[Line], effort: ExperimentBudget, made: str
) -> list[str]:
    """The same models with more time, and STONet without its expert; `made` says by which code."""
    by = {(line["dataset"], line["model"]): line for line in lines}
    tasks = list(effort.tasks)
    command = f"`stonet reproduce comparison --budget {effort.name} --models {','.join(LONGER)}`"
    text = ["### With more time", ""]
    text += [f"{command}: {effort.training} for each training, one seed. {made} Test MAE:", ""]
    text += _ranked(by, tasks, "mae")
    text += ["Steps that were taken in that time; STONet's school comes before its:", ""]
    steps = {m: [by.get((task, m), {}).get("steps") for task in tasks] for m in (*BASELINES, OURS)}
    text += grid(["model", *tasks], [[m, *map(shown, row)] for m, row in steps.items()])
    known = {(x["dataset"], x["whole"], x["factor"], x["value"]): x["mae"] for x in ablated}
    columns = (
        ("default", "residual_width", "128"),
        ("default", "residual_width", "0"),
        ("operator", "consecutive", "4"),
        ("operator", "consecutive", "1"),
    )
    rows = [
        [
            task,
            shown(by.get((task, "linear"), {}).get("mae"), task),
            *(shown(known.get((task, *column)), task) for column in columns),
        ]
        for task in dict.fromkeys(task for task, *_ in known)
    ]
    if rows:
        told = f"`stonet reproduce ablation --budget {effort.name} --models {','.join(PARTS)}`"
        text += [
            "STONet with and without its experts; and the operator by itself, with runs of four "
            f"windows and with windows from anywhere, in the same time ({told}):",
            "",
        ]
        head = ["task", "linear base", "the default", "no experts", "operator, runs of four"]
        text += grid([*head, "operator, from anywhere"], rows)
    return text


def _ranked(by: dict[tuple[str, str], Line], tasks: list[str], metric: str) -> list[str]:
    """Every model; of each task the best in bold, the second in italics."""
    marks: dict[tuple[str, str], str] = {}
    for task in tasks:
        known = sorted((by[task, m][metric], m) for m in ORDER if (task, m) in by)
        marks |= {(task, m): mark for (_, m), mark in zip(known, ("**", "*"), strict=False)}
    rows = []
    for model in ORDER:
        cells = []
        for task in tasks:
            line, mark = by.get((task, model), {}), marks.get((task, model), "")
            text = shown(line.get(metric), task, line.get(f"{metric}_std"))
            cells.append(f"{mark}{text}{mark}")
        if any(cell != DASH for cell in cells):
            rows.append([model, *cells])
    return grid(["model", *heads(tasks)], rows)


def _took(by: dict[tuple[str, str], Line], tasks: list[str]) -> list[str]:
    """Steps and seconds of every training, means over the seeds."""
    rows = []
    for model in (m for m in ORDER if m not in REFERENCE_FORECASTS):
        lines = [by.get((task, model)) for task in tasks]
        told = [DASH if x is None else f"{x['steps']:.0f} ({x['seconds']:.0f} s)" for x in lines]
        if any(lines):
            rows.append([model, *told])
    return grid(["model", *tasks], rows)


def _beside_paper(by: dict[tuple[str, str], Line], task: str) -> list[str]:
    name, line = task_of(task).paper, by.get((task, OURS), {})
    theirs = [DASH] * 4
    if name is not None:
        others = {
            m: v[0]
            for (d, m), v in paper_tables.COMPARISON.items()
            if d == name and m != paper_tables.OURS
        }
        best = min(others, key=lambda model: others[model])
        published = paper_tables.COMPARISON[name, paper_tables.OURS][0]
        mine = f"{published:.4g} ({paper_tables.UNITS[name]})"
        gain = percent(paper_tables.improvement(name))
        theirs = [name, mine, f"{best} {others[best]:.4g}", gain]
    second = line.get("second")
    other = DASH
    if second is not None:
        other = f"{second} {shown(by[task, second]['mae'], task)}"
    ours = [shown(line.get("mae"), task), other, percent(line.get("improvement"))]
    return [task, *theirs, *ours, str(line.get("windows", DASH)), likely(line.get("p"))]


def _whose(by: dict[tuple[str, str], Line], task: str) -> list[str]:
    def best(models: Sequence[str]) -> str:
        known = [(by[task, model]["mae"], model) for model in models if (task, model) in by]
        return f"{shown(min(known)[0], task)} ({min(known)[1]})" if known else DASH

    linear, ours = (by.get((task, m), {}).get("mae") for m in ("linear", OURS))
    baselines, based = best(BASELINES), best(comparison.BASED)
    return [task, shown(linear, task), baselines, based, shown(ours, task)]


def _is_ours(result: Result) -> bool:
    cell = result.cell
    return (cell.label, cell.seed) == (OURS, 0) and "skipped" not in result.scores


def _spread(by: dict[tuple[str, str], Line], ours: Result | None, task: str) -> list[str]:
    line = by.get((task, OURS), {})
    spread = {} if ours is None else ours.scores["spread"]
    points = [shown(spread.get(key), task) for key in ("median", "p90", "most")]
    errors = [shown(line.get(key), task) for key in ("mae", "bias")]
    return [f"{task} ({task_of(task).unit})", *errors, shown(line.get("mape")), *points]


def _worst(ours: Result, task: str) -> list[str]:
    told = (
        f"{shown(one['mae'], task)} at {', '.join(f'{x:.4g}' for x in one['at'])}"
        for one in ours.scores["worst"]
    )
    return [task, "; ".join(told)]
