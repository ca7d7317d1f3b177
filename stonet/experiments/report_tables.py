"""The chapters of docs/results.md, one for each experiment: tables in the paper's layout.

Errors are shown in the tasks' units (`tasks.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stonet.experiments import ablation, comparison, cost, paper_tables
from stonet.experiments.cell import Result
from stonet.experiments.datasets import task_of
from stonet.experiments.irregular import EVERY
from stonet.experiments.markdown import DASH, grid, heads, likely, percent, shown
from stonet.experiments.report_comparison import on_comparison

Line = dict[str, Any]
CHANGES = "Percentages: the change of a model's own MAE against nothing missing."
COARSER = (
    f"MAE of models that learned from every {EVERY}th frame, and so look {EVERY} times as far "
    "ahead: not to be compared with errors above."
)


def on_inductive(lines: Sequence[Line], results: Sequence[Result], tasks: list[str]) -> list[str]:
    """The paper's Table 4, with points without a past and the alternatives for them."""
    mine = [line for line in lines if line["model"] == comparison.OURS]
    rows = []
    for line in mine:
        task, name = line["dataset"], task_of(line["dataset"]).paper
        theirs = paper_tables.INDUCTIVE[name] if name else None
        share = DASH if line["share"] is None else f"{line['share']:.0%}"
        rows.append(
            [
                task,
                share,
                *(shown(line[k], task, line[f"{k}_std"]) for k in ("seen", "unseen")),
                percent(line["deviation"]),
                percent(line.get("deviation_floor")),
                DASH if theirs is None else f"{theirs[2]:+.1f} %",
                shown(line["no_history"], task),
                line.get("alternative", DASH),
                shown(line.get("alternative_mae"), task),
                percent(line.get("gain")),
                likely(line.get("p")),
            ]
        )
    head = [
        "task",
        "held out",
        "seen",
        "unseen, with a past",
        "Deviation",
        "persistence's Deviation",
        "paper's Deviation",
        "unseen, without a past",
        "best alternative",
        "its MAE",
        "gain",
        "p",
    ]
    note = (
        "STONet's MAE; the alternative interpolates a forecast at the sensors. Where persistence "
        "deviates too, the unseen points are easier or harder ones."
    )
    return [note, "", *grid(head, rows), *_by_ratio(results)]


def _by_ratio(results: Sequence[Result]) -> list[str]:
    """The paper's sweep: one model, more and more unseen points beside the seen ones."""
    rows = []
    for result in results:
        for one in result.scores.get("ratios") or ():
            task = result.cell.dataset
            maes = (shown(one[kind]["mae"], task) for kind in ("unseen", "no_history"))
            rows.append([task, f"{one['ratio']:g}", str(one["points"]), *maes])
    if not rows:
        return []
    head = ["task", "unseen over seen", "points", "unseen, with a past", "without a past"]
    return ["### One model, more and more unseen points", "", *grid(head, rows)]


def on_irregular(lines: Sequence[Line], results: Sequence[Result], tasks: list[str]) -> list[str]:
    """What fewer labels and missing inputs cost each model, and times between the steps."""
    text = [CHANGES, ""]
    asks = {
        "labels": "Labels kept in each training window (n_t')",
        "random": "Share of single inputs that is missing",
        "outage": "Share of sensors that is silent",
        "thinned": "Share of input frames that is missing",
    }
    for ask, title in asks.items():
        mine = [line for line in lines if line["ask"] == ask]
        levels = sorted({line["level"] for line in mine})
        rows = []
        for task, model in dict.fromkeys((line["dataset"], line["model"]) for line in mine):
            change = {
                line["level"]: line["change"]
                for line in mine
                if (line["dataset"], line["model"]) == (task, model)
            }
            if len(change) > 1:
                rows.append([task, model, *(percent(change.get(level)) for level in levels)])
        if rows:
            told = [f"{v:g}" if ask == "labels" else f"{v:.0%}" for v in levels]
            text += [f"### {title}", "", *grid(["task", "model", *told], rows)]
    odd = {
        "between": "Times between the steps: the model itself, interpolated, and the truth so",
        "odd inputs": "Inputs at irregular times: in step, told when, and not told",
    }
    for ask, title in odd.items():
        found = [line for line in lines if line["ask"] == ask]
        levels = list(dict.fromkeys(line["level"] for line in found))
        rows = []
        for task, model in dict.fromkeys((line["dataset"], line["model"]) for line in found):
            mae = {
                line["level"]: line["mae"]
                for line in found
                if (line["dataset"], line["model"]) == (task, model)
            }
            rows.append([task, model, *(shown(mae.get(level), task) for level in levels)])
        if rows:
            text += [f"### {title}", "", COARSER, ""]
            text += grid(["task", "model", *map(str, levels)], rows)
    return text


def on_ablation(lines: Sequence[Line], results: Sequence[Result], tasks: list[str]) -> list[str]:
    """The paper's Table 5, of the operator by itself, and our own factors of the default."""
    tasks = list(dict.fromkeys(line["dataset"] for line in lines))
    text = [
        "Test MAE, and its change against the whole's own value (bold). What chance does is told "
        "by the factor `seed`. The paper's factors are the operator's, which has little to learn "
        "on top of base and experts in so short a time: it is taken apart where it stands alone, "
        "without either.",
    ]
    for name in ablation.WHOLES:
        mine = [line for line in lines if line["whole"] == name]
        if not mine:
            continue
        asked = {ablation.label(name, f".{x['factor']}", x["value"]) for x in mine} | {name}
        taken = dict.fromkeys(_budget(r) for r in results if r.cell.label in asked)
        title = "The default" if name == ablation.DEFAULT else f"The {name} by itself"
        text += ["", f"### {title}", "", f"Each with {'; '.join(taken)}.", ""]
        text += _whole(name, mine, tasks)
    return text


def _whole(name: str, lines: Sequence[Line], tasks: Sequence[str]) -> list[str]:
    """What becomes of a whole when one setting is changed; beside it what the paper found."""
    rows = []
    for setting, values in ablation.WHOLES[name].factors.items():
        factor = ablation.short(setting)
        for value in values:
            mine = {x["dataset"]: x for x in lines if (x["factor"], x["value"]) == (factor, value)}
            if not mine:
                continue
            usual = any(line["default"] for line in mine.values())
            theirs = paper_tables.ABLATION.get((factor, value))
            rows.append(
                [
                    factor,
                    f"**{value}**" if usual else value,
                    *(_ablated(mine.get(task), task) for task in tasks),
                    *([DASH] * 2 if theirs is None else [f"{x:.4g}" for x in theirs]),
                ]
            )
    head = ["factor", "value", *heads(tasks), "paper: Solar (MW)", "paper: Temperature (K)"]
    return grid(head, rows)


def _budget(result: Result) -> str:
    training = result.cell.training
    taught = (
        f", {training.pretraining_steps} steps of schooling at most"
        if training.pretraining_steps
        else ""
    )
    return f"{training}{taught}"


def _ablated(line: Line | None, task: str) -> str:
    if line is None:
        return DASH
    return shown(line["mae"], task) + ("" if line["default"] else f" ({percent(line['change'])})")


def on_cost(lines: Sequence[Line], results: Sequence[Result], tasks: list[str]) -> list[str]:
    """The paper's Table 6."""
    head = ["task", "decoder", "s/epoch", "times revised", "peak MB", "test MAE", "training MAE"]
    rows = [
        [
            line["dataset"],
            line["decoder"],
            shown(line["seconds_per_epoch"]),
            shown(line["times"]),
            f"{line['memory_mb']:.0f}",
            shown(line["mae"], line["dataset"]),
            shown(line["train_mae"], line["dataset"]),
        ]
        for line in lines
    ]
    told = "; ".join(
        f"{name} {ode:g} min with the ODE and {plain:g} without, {ode / plain:.1f} times"
        for name, (ode, _, plain, _) in paper_tables.COST.items()
    )
    note = (
        f"At the paper's sizes, but `{cost.DEFAULT}` is the default preset. Errors on at most "
        f"{cost.WINDOWS} windows of each part. Base and schooling come before the default's "
        f"epochs and are not in them. The paper, on a V100, per epoch: {told}."
    )
    return [note, "", *grid(head, rows)]


CHAPTERS: dict[str, Callable[[Sequence[Line], Sequence[Result], list[str]], list[str]]] = {
    "comparison": on_comparison,
    "inductive": on_inductive,
    "irregular": on_irregular,
    "ablation": on_ablation,
    "cost": on_cost,
}
