"""Pictures of a comparison: all models on one scale, errors by lead, by hour, and on a map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from stonet.data.geometry import Points
from stonet.experiments.cell import Result
from stonet.experiments.datasets import task_of
from stonet.experiments.drawing import panels, save
from stonet.plotting.figures import DPI, MARKERS, PALETTE
from stonet.plotting.maps import MapProjection

COLOURS = {
    "STONet": PALETTE[1],
    "baseline": PALETTE[0],
    "baseline on the base": PALETTE[5],
    "reference forecast": "0.45",
}
WIDE = 12.0  # a largest error over the smallest from which the scale is logarithmic
ACROSS = {"by_lead": "lead (steps)", "by_hour": "hour of the target (UTC)"}


def draw_all(lines: Sequence[dict[str, Any]], kinds: Mapping[str, str], path: Path) -> None:
    """A panel for each task, a dot for each model, the best at the top; bars span the seeds."""
    tasks = list(dict.fromkeys(line["dataset"] for line in lines))
    most = max(sum(line["dataset"] == task for line in lines) for task in tasks)
    figure, every = panels([_title(task) for task in tasks], (4.3, 1.2 + 0.17 * most))
    for axes, task in zip(every, tasks, strict=True):
        mine = [line for line in lines if line["dataset"] == task][::-1]
        unit = task_of(task).per_unit
        error = np.array([line["mae"] for line in mine]) / unit
        spread = np.array([line["mae_std"] or 0.0 for line in mine]) / unit
        for row, line in enumerate(mine):
            colour = COLOURS[kinds[line["model"]]]
            axes.errorbar(error[row], row, xerr=spread[row], fmt="o", color=colour, markersize=4.5)
        axes.set_yticks(range(len(mine)), [line["model"] for line in mine], fontsize=7.5)
        if error.max() > WIDE * error.min() > 0:
            axes.set_xscale("log")
        else:
            axes.set_xlim(left=0.0)
        axes.set_xlabel(f"test MAE ({task_of(task).unit or 'data unit'})", fontsize=9)
    for kind, colour in COLOURS.items():
        every[0].plot([], [], "o", color=colour, markersize=4.5, label=kind)
    every[0].legend(frameon=False, fontsize=8, loc="lower right")
    save(figure, path)


def draw_curves(
    results: Sequence[Result], shown: Mapping[str, Sequence[str]], key: str, path: Path
) -> None:
    """MAE over the lead or the hour; tasks without hours are left out of the latter."""
    found = {
        task: {
            label: mean
            for label in dict.fromkeys(labels)
            if (mean := _mean(results, task, label, key)) is not None
        }
        for task, labels in shown.items()
    }
    found = {task: curves for task, curves in found.items() if curves}
    if not found:
        return
    figure, every = panels([_title(task) for task in found])
    for axes, (task, curves) in zip(every, found.items(), strict=True):
        for rank, (label, mean) in enumerate(curves.items()):
            across = np.arange(len(mean)) + (key == "by_lead")
            look: dict[str, Any] = {"color": PALETTE[(1, 0, 2, 8)[rank]], "marker": MARKERS[rank]}
            axes.plot(across, mean / task_of(task).per_unit, label=label, ms=3, lw=1.5, **look)
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel(ACROSS[key], fontsize=9)
        axes.set_ylabel(f"MAE ({task_of(task).unit or 'data unit'})", fontsize=9)
        axes.legend(frameon=False, fontsize=8)
    save(figure, path)


def _mean(
    results: Sequence[Result], task: str, label: str, key: str
) -> Float64[np.ndarray, " place"] | None:
    """The MAE's curve, the mean over seeds."""
    rows = [
        result.scores[key]["mae"]
        for result in results
        if (result.cell.dataset, result.cell.label) == (task, label) and result.scores.get(key)
    ]
    return np.array(rows, dtype=np.float64).mean(0) if rows else None


def draw_maps(results: Sequence[Result], pairs: Mapping[str, tuple[str, str]], path: Path) -> None:
    """Where the errors are: two models beside each other, one scale for both."""
    found = {}
    for task, labels in pairs.items():
        points = _points(results, task)
        errors = [_by_point(results, task, label) for label in labels]
        if points is not None and all(e is not None and len(e) == len(points) for e in errors):
            found[task] = points, errors
    if not found:
        return
    sheets = {task: MapProjection.of(points) for task, (points, _) in found.items()}
    height = sum(sheet.panel()[1] + 0.75 for sheet in sheets.values())
    figure = Figure((7.8, height), dpi=DPI, layout="constrained")
    rows = figure.subplots(len(found), 2, squeeze=False)
    for row, (task, (points, errors)) in zip(rows, found.items(), strict=True):
        unit = task_of(task).per_unit
        values = [np.asarray(error) / unit for error in errors]
        look: dict[str, Any] = {
            "norm": Normalize(0.0, float(np.nanpercentile(np.concatenate(values), 99))),
            "cmap": "viridis",
        }
        for axes, label, value in zip(row, pairs[task], values, strict=True):
            sheets[task].draw(axes, points, value, **look)
            axes.set_title(f"{label}, mean {np.nanmean(value):.3g}", fontsize=10)
            axes.tick_params(labelsize=8)
        bar = figure.colorbar(ScalarMappable(**look), ax=list(row), extend="max", pad=0.02)
        bar.set_label(f"{task}\nMAE ({task_of(task).unit or 'data unit'})", fontsize=9)
    save(figure, path)


def _points(results: Sequence[Result], task: str) -> Points | None:
    """Where the errors by point are."""
    for result in results:
        if result.cell.dataset == task and "coordinates" in result.scores:
            return Points(np.array(result.scores["coordinates"]), result.scores["kind"])
    return None


def _by_point(
    results: Sequence[Result], task: str, label: str
) -> Float64[np.ndarray, " node"] | None:
    rows = [
        result.scores["by_point"]
        for result in results
        if (result.cell.dataset, result.cell.label) == (task, label)
        and result.scores.get("by_point")
    ]
    return np.array(rows, dtype=np.float64).mean(0) if rows else None


def _title(task: str) -> str:
    return task_of(task).title or task
