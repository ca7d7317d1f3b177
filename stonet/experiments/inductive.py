"""Inductive: points that training never saw, with a past of their own and without one.

The paper's Table 4 and its sweep of the ratio unseen/seen. Deviation is the paper's
100 (MAE_unseen - MAE_seen) / MAE_seen, at points that join with their past. A place without a past
is the harder question; its honest alternative is to forecast at the sensors, by any model, and to
interpolate the forecasts, by inverse distances or kriging, each as it suits the training part best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64
from matplotlib.axes import Axes

from stonet.config import Config
from stonet.data.field import Dataset
from stonet.errors import UsageError, unknown_name
from stonet.evaluation.interpolation import interpolate
from stonet.evaluation.metrics import deviation
from stonet.experiments.budgets import ExperimentBudget
from stonet.experiments.cell import Cell, Result, Scores
from stonet.experiments.comparison import GROUPS, LABELS, OURS, tested, variant
from stonet.experiments.drawing import panels, save
from stonet.experiments.places import asked, beside, by_ratio, errors, fitted, what_came
from stonet.models.registry import MODELS, REFERENCE_FORECASTS
from stonet.plotting.figures import MARKERS, PALETTE
from stonet.training.budget import Budget, train

NAME = "inductive"
GOALS = {"deviation": 4.0, "gain": 10.0}  # percent: at most, at least
SHARES = (0.1, 0.2, 0.3, 0.5)  # of all points, held out
MAIN = 0.2  # at which every model is asked
CHOSEN = (OURS, "astgcn", "linear", "persistence", "daily")
FEW = (OURS, "stgcn", "persistence")
HOW = ("idw", "kriging")
COLUMNS = (
    "dataset",
    "share",
    "model",
    "seen",
    "unseen",
    "deviation",
    "no_history",
    *HOW,
    "alternative",
    "gain",
    "p",
    "stale",
)


def cells(
    datasets: Sequence[str], models: Sequence[str], seeds: int, budget: ExperimentBudget
) -> list[Cell]:
    """Every model at the main share; STONet at others too, on some tasks and with one seed.

    The paper's own protocol needs data sets that hold points out themselves; it is the full budget.
    """
    labels = [label for name in models for label in GROUPS.get(name, (name,))]
    for label in labels:
        if label not in LABELS and label not in MODELS:
            raise unknown_name("model", label, [*LABELS, *GROUPS])
    chosen = tuple(dict.fromkeys(labels)) or (FEW if budget.few else CHOSEN)
    own = budget.name.startswith("full")
    shares = (None,) if own else (MAIN,) if budget.few else (MAIN, *SHARES)
    found = []
    for dataset in datasets:
        for label in chosen:
            swept = label == OURS and dataset in budget.ablated
            for share in dict.fromkeys(shares if swept else shares[:1]):
                ratios = label == OURS and share in (None, SHARES[-1])
                what, extra = variant(label), {"share": share, "ratios": ratios}
                if share is not None:
                    what["settings"] = (*what.get("settings", ()), f"data.unseen={share}")
                row = label if share in (None, MAIN) else f"{label} {share:.0%} unseen"
                count = seeds if share == shares[0] and label not in REFERENCE_FORECASTS else 1
                found += [
                    budget.cell(NAME, dataset, row, seed, extra=extra, inductive=own, **what)
                    for seed in range(count)
                ]
    return found


def measure(cell: Cell, dataset: Dataset, config: Config, budget: Budget) -> Scores:
    """Errors at seen and unseen points, and of the same forecasts interpolated.

    *Ideal* is kriging of what came at the seen points: what no interpolated forecast goes below.
    """
    try:
        trained = train(dataset, config, budget)
    except UsageError as error:  # daily persistence without days
        return {"skipped": str(error)}
    task, seen = trained.task, trained.task.dataset.seen
    unseen = np.asarray(task.dataset.unseen, dtype=np.int64)
    if not len(unseen):
        return {"skipped": f"'{dataset.name}' holds no points out. Set data.unseen."}
    at_seen = list(asked(trained, seen, seen))
    groups = {"seen": errors(trained, at_seen, len(seen))}
    if trained.trained.model.inductive:
        both = np.concatenate([seen, unseen])
        for name, nodes in (("unseen", both), ("no_history", seen)):
            groups[name] = errors(trained, asked(trained, nodes, unseen), len(unseen))
    methods = fitted(task)
    forecast = np.concatenate([answer.forecast.numpy() for answer in at_seen])
    sources = {how: (forecast, how) for how in HOW}
    if cell.label.startswith(OURS):
        sources["ideal"] = what_came(at_seen), "kriging"
    for name, (values, how) in sources.items():
        guess = interpolate(values, task.nodes, task.dataset.points.take(unseen), methods[how])
        guess = trained.trained.scaler.within(guess)  # as all forecasts are
        groups[name] = errors(trained, beside(task, guess, unseen), len(unseen))
    for name in {*groups} - {"no_history", *HOW}:  # whose difference is tested
        del groups[name]["by_window"]
    return {
        "points": {"seen": len(seen), "unseen": len(unseen)},
        "groups": groups,
        "deviation": deviations(groups),
        "methods": {how: [asdict(one) for one in methods[how]] for how in HOW},
        "ratios": by_ratio(trained, seen, unseen) if cell.options["ratios"] else [],
        "units": list(trained.trained.units),
        "training": vars(trained.cost),
    }


def deviations(groups: Scores) -> Scores | None:
    """Of the errors at unseen points from those at seen ones, in percent."""
    if "unseen" not in groups:
        return None
    return {
        name: {m: deviation(groups["seen"][m], groups[name][m]) for m in ("mae", "rmse")}
        for name in ("unseen", "no_history")
    }


def table(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One line for each task, share and model: errors by kind of points, means over the seeds.

    Where persistence deviates too (`deviation_floor`), the unseen points are harder or easier ones.
    """
    rows: dict[tuple[str, float | None, str], list[Result]] = {}
    for result in results:
        if "skipped" not in result.scores:
            cell = result.cell
            label = cell.label.split(" ")[0]
            rows.setdefault((cell.dataset, cell.options["share"], label), []).append(result)
    lines = [_line(*key, found) for key, found in rows.items()]
    for line in lines:
        if line["model"] == OURS and line["no_history"] is not None:
            line |= _against_best(line, lines, rows)
            reference = (
                one for one in lines if one["model"] == "persistence" and _alike(one, line)
            )
            line["deviation_floor"] = next((one["deviation"] for one in reference), None)
    return sorted(lines, key=lambda line: (line["dataset"], line["share"] or 0.0, line["seen"]))


def _line(dataset: str, share: float | None, label: str, rows: Sequence[Result]) -> dict[str, Any]:
    line: dict[str, Any] = {"dataset": dataset, "share": share, "model": label, "seeds": len(rows)}
    points = rows[0].scores["points"]
    line["ratio"] = points["unseen"] / points["seen"]
    for group in ("seen", "unseen", "no_history", *HOW, "ideal"):
        for metric, suffix in (("mae", ""), ("rmse", "_rmse")):
            values = [r.scores["groups"][group][metric] for r in rows if group in _groups(r)]
            line[f"{group}{suffix}"] = float(np.mean(values)) if values else None
        maes = [r.scores["groups"][group]["mae"] for r in rows if group in _groups(r)]
        line[f"{group}_std"] = float(np.std(maes)) if len(maes) > 1 else None
    for group, name in (("unseen", "deviation"), ("no_history", "deviation_no_history")):
        known = line[group] is not None
        line[name] = deviation(line["seen"], line[group]) if known else None
    line["stale"] = sorted({r.commit for r in rows if r.stale})
    return line


def _against_best(
    ours: dict[str, Any],
    lines: Sequence[dict[str, Any]],
    rows: dict[tuple[str, float | None, str], list[Result]],
) -> dict[str, Any]:
    """How far our answer without a past lies below the best interpolated forecast there is."""
    here = [line for line in lines if _alike(line, ours)]
    best, how = min(((line, how) for line in here for how in HOW), key=lambda p: p[0][p[1]])
    key = ours["dataset"], ours["share"]
    mine = _windows(rows[*key, OURS], "no_history")
    theirs = _windows(rows[*key, best["model"]], how)
    found = {
        "alternative": f"{best['model']}, {how}",
        "alternative_mae": best[how],
        "gain": 100 * (1 - ours["no_history"] / best[how]),
    }
    return found | tested(mine, theirs)


def _alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two lines are about the same points."""
    return all(one[key] == other[key] for key in ("dataset", "share"))


def _groups(result: Result) -> Scores:
    groups: Scores = result.scores["groups"]
    return groups


def _windows(rows: Sequence[Result], group: str) -> Float64[np.ndarray, " window"]:
    """MAE of each test window, the mean over seeds."""
    found = [_groups(r)[group]["by_window"] for r in rows]
    return np.array(found, dtype=np.float64).mean(0)


def figure(results: Sequence[Result], path: Path) -> None:
    """Deviation by the share that is unseen; errors without a past against the alternatives."""
    lines = table(results)
    tasks = list(dict.fromkeys(line["dataset"] for line in lines))
    if not tasks:
        return
    titles = ["unseen points with a past", "places without a past, MAE over best alternative's"]
    drawn, (left, right) = panels(titles, (5.2, max(3.4, 1.2 + 0.5 * len(tasks))))
    _deviations(left, tasks, lines)
    _alternatives(right, tasks, lines)
    save(drawn, path)


def _deviations(axes: Axes, tasks: Sequence[str], lines: Sequence[dict[str, Any]]) -> None:
    for rank, task in enumerate(tasks):
        mine = [one for one in lines if (one["dataset"], one["model"]) == (task, OURS)]
        share = [100 * one["ratio"] / (1 + one["ratio"]) for one in mine]
        found = [one["deviation"] for one in mine]
        colour, marker = PALETTE[rank % len(PALETTE)], MARKERS[rank % len(MARKERS)]
        axes.plot(share, found, color=colour, marker=marker, markersize=5, label=task)
    axes.axhline(GOALS["deviation"], color="0.4", linewidth=0.8, linestyle="--")
    axes.axhline(0.0, color="0.4", linewidth=0.8)
    axes.set_xlabel("points held out (%)", fontsize=9)
    axes.set_ylabel("Deviation of the MAE (%)", fontsize=9)
    axes.legend(frameon=False, fontsize=8)


def _alternatives(axes: Axes, tasks: Sequence[str], lines: Sequence[dict[str, Any]]) -> None:
    """A row for each task, a colour for each model, a marker for each way to answer."""
    models = list(dict.fromkeys(line["model"] for line in lines))
    colours = {model: PALETTE[rank % len(PALETTE)] for rank, model in enumerate(models)}
    ways = {"no_history": ("*", 11), "idw": ("s", 4), "kriging": ("o", 4)}
    for row, task in enumerate(tasks):
        here = [one for one in lines if one["dataset"] == task and one["share"] in (MAIN, None)]
        best = next((one["alternative_mae"] for one in here if "gain" in one), None)
        for one, how in ((one, how) for one in here for how in ways):
            if best and one[how] is not None:
                marker, size = ways[how]
                place = one[how] / best, row
                axes.plot(*place, marker, color=colours[one["model"]], markersize=size)
    axes.axvline(1.0, color="0.4", linewidth=0.8)
    axes.axvline(1 - GOALS["gain"] / 100, color="0.4", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(tasks)), tasks)
    for how, (marker, size) in ways.items():
        axes.plot([], [], marker, color="0.4", markersize=size, label=how.replace("_", " "))
    for model, colour in colours.items():
        axes.plot([], [], "-", color=colour, linewidth=3, label=model)
    axes.legend(frameon=False, fontsize=7)
