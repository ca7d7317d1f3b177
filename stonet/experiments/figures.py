"""Figures of the experiments: panels, and the four figures of the comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from stonet.data.geometry import Points
from stonet.evaluation.ranks import Ranking
from stonet.experiments.cell import Result
from stonet.experiments.datasets import experiment_data
from stonet.experiments.tables import Line, unique
from stonet.plotting.figures import DPI, MARKERS, PALETTE, png
from stonet.plotting.maps import MapProjection
from stonet.system.atomic import replacing

MAX_COLUMNS = 3
COLOURS = {
    "STONet": PALETTE[1],
    "baseline of the paper": PALETTE[0],
    "other model": PALETTE[5],
    "reference forecast": "0.45",
    "registered model": PALETTE[2],
}
LOG_RATIO = 12.0  # largest over smallest error from which the scale is logarithmic
X_LABELS = {"by_lead": "lead (steps)", "by_hour": "hour of the target (UTC)"}


def panels(titles: list[str], size: tuple[float, float] = (3.9, 3.1)) -> tuple[Figure, list[Axes]]:
    """A figure with one panel per title, at most three in a row.

    Args:
        titles: of the panels.
        size: width and height of a panel, in inches.
    """
    columns = min(MAX_COLUMNS, len(titles))
    rows = math.ceil(len(titles) / columns)
    figure = Figure((columns * size[0], rows * size[1]), dpi=DPI, layout="constrained")
    grid = list(np.ravel(figure.subplots(rows, columns, squeeze=False)))
    for axes, title in zip(grid, titles, strict=False):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.9", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.set_title(title, fontsize=11)
        axes.tick_params(labelsize=9)
    for axes in grid[len(titles) :]:
        axes.set_visible(False)
    return figure, grid[: len(titles)]


def save(figure: Figure, path: Path) -> None:
    """Write a PNG file; an existing one is replaced when the new one is complete.

    Args:
        figure: to be drawn.
        path: of the PNG file; its folder is created if absent.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as part:
        part.write_bytes(png(figure))


def line_style(rank: int) -> dict[str, Any]:
    """Colour and marker of the line of this rank.

    Args:
        rank: of the line, from 0; colours and markers repeat.
    """
    return {"color": PALETTE[rank % len(PALETTE)], "marker": MARKERS[rank % len(MARKERS)]}


def draw_models(lines: Sequence[Line], kinds: Mapping[str, str], path: Path) -> None:
    """A panel per data set with the MAE of every model, the best at the top.

    Args:
        lines: of the comparison's table, the best first.
        kinds: model -> key of COLOURS; a model without one has been registered by a user.
        path: PNG file.
    """
    datasets = unique(line["dataset"] for line in lines)
    max_rows = max(sum(line["dataset"] == name for line in lines) for name in datasets)
    figure, grid = panels([_title(name) for name in datasets], (4.3, 1.2 + 0.17 * max_rows))
    for axes, name in zip(grid, datasets, strict=True):
        rows = [line for line in lines if line["dataset"] == name][::-1]
        data = experiment_data(name)
        mae = np.array([line["mae"] for line in rows]) / data.per_unit
        spread = np.array([line["mae_std"] or 0.0 for line in rows]) / data.per_unit
        for y, line in enumerate(rows):
            colour = COLOURS[kinds.get(line["model"], "registered model")]
            axes.errorbar(mae[y], y, xerr=spread[y], fmt="o", color=colour, markersize=4.5)
        axes.set_yticks(range(len(rows)), [line["model"] for line in rows], fontsize=7.5)
        if mae.max() > LOG_RATIO * mae.min() > 0:
            axes.set_xscale("log")
        else:
            axes.set_xlim(left=0.0)
        axes.set_xlabel(f"test MAE ({data.error_unit})", fontsize=9)
    drawn = {kinds.get(line["model"], "registered model") for line in lines}
    for kind in (kind for kind in COLOURS if kind in drawn):
        grid[0].plot([], [], "o", color=COLOURS[kind], markersize=4.5, label=kind)
    grid[0].legend(frameon=False, fontsize=8, loc="lower right")
    save(figure, path)


def draw_ranks(ranking: Ranking, kinds: Mapping[str, str], path: Path) -> None:
    """The mean rank of every model; bars join models that are not significantly different.

    Args:
        ranking: of the models, the best first.
        kinds: model -> key of COLOURS.
        path: PNG file.
    """
    names = list(ranking.ranks)
    drawn, (axes,) = panels(
        [f"mean rank over {ranking.tasks} data sets"], (7.0, 1.3 + 0.2 * len(names))
    )
    for row, name in enumerate(names):
        colour = COLOURS[kinds.get(name, "registered model")]
        axes.plot(ranking.ranks[name], row, "o", color=colour, markersize=5)
    for group in ranking.groups:
        ends = [names.index(name) for name in (group[0], group[-1])]
        middle = np.mean([ranking.ranks[name] for name in group])
        axes.plot(
            [middle, middle], ends, color="0.6", linewidth=3, solid_capstyle="round", zorder=0
        )
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(f"mean rank by MAE (critical difference {ranking.difference:.1f})", fontsize=9)
    save(drawn, path)


def draw_curves(
    results: Sequence[Result], models: Mapping[str, Sequence[str]], key: str, path: Path
) -> None:
    """A panel per data set with the MAE over the lead or the hour; data without it are left out.

    Args:
        results: of the comparison.
        models: data set -> labels of the models to draw.
        key: "by_lead" or "by_hour".
        path: PNG file.
    """
    curves = {
        name: {
            label: curve
            for label in unique(labels)
            if (curve := _mean_of(results, name, label, key)) is not None
        }
        for name, labels in models.items()
    }
    curves = {name: by_label for name, by_label in curves.items() if by_label}
    if not curves:
        return
    figure, grid = panels([_title(name) for name in curves])
    for axes, (name, by_label) in zip(grid, curves.items(), strict=True):
        data = experiment_data(name)
        for rank, (label, curve) in enumerate(by_label.items()):
            x = np.arange(len(curve)) + (key == "by_lead")
            style: dict[str, Any] = {"color": PALETTE[(1, 0, 2, 8)[rank]], "marker": MARKERS[rank]}
            axes.plot(x, curve / data.per_unit, label=label, ms=3, lw=1.5, **style)
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel(X_LABELS[key], fontsize=9)
        axes.set_ylabel(f"test MAE ({data.error_unit})", fontsize=9)
        axes.legend(frameon=False, fontsize=8)
    save(figure, path)


def draw_maps(results: Sequence[Result], pairs: Mapping[str, tuple[str, str]], path: Path) -> None:
    """Maps of the MAE of two models per data set, on one colour scale.

    Args:
        results: of the comparison.
        pairs: data set -> labels of two models.
        path: PNG file.
    """
    maps = {}
    for name, labels in pairs.items():
        points = _points(results, name)
        errors = [_mean_of(results, name, label, "by_point") for label in labels]
        if points is not None and all(e is not None and len(e) == len(points) for e in errors):
            maps[name] = points, errors
    if not maps:
        return
    projections = {name: MapProjection.of(points) for name, (points, _) in maps.items()}
    height = sum(projection.panel()[1] + 0.75 for projection in projections.values())
    figure = Figure((7.8, height), dpi=DPI, layout="constrained")
    rows = figure.subplots(len(maps), 2, squeeze=False)
    for row, (name, (points, errors)) in zip(rows, maps.items(), strict=True):
        data = experiment_data(name)
        values = [np.asarray(error) / data.per_unit for error in errors]
        scale: dict[str, Any] = {
            "norm": Normalize(0.0, float(np.nanpercentile(np.concatenate(values), 99))),
            "cmap": "viridis",
        }
        for axes, label, value in zip(row, pairs[name], values, strict=True):
            projections[name].draw(axes, points, value, **scale)
            axes.set_title(f"{label}, mean {np.nanmean(value):.3g}", fontsize=10)
            axes.tick_params(labelsize=8)
        bar = figure.colorbar(ScalarMappable(**scale), ax=list(row), extend="max", pad=0.02)
        bar.set_label(f"{name}\ntest MAE ({data.error_unit})", fontsize=9)
    save(figure, path)


def _mean_of(
    results: Sequence[Result], dataset: str, label: str, key: str
) -> Float64[np.ndarray, " place"] | None:
    """The MAE by lead, hour or point, as the mean over the seeds; None where it was not kept."""
    rows = [
        scores if key == "by_point" else scores["mae"]
        for result in results
        if (result.cell.dataset, result.cell.label) == (dataset, label)
        and (scores := result.scores.get(key))
    ]
    return np.array(rows, dtype=np.float64).mean(0) if rows else None


def _points(results: Sequence[Result], dataset: str) -> Points | None:
    """The points of the errors by point, stored with one result per data set."""
    for result in results:
        if result.cell.dataset == dataset and "coordinates" in result.scores:
            return Points(np.array(result.scores["coordinates"]), result.scores["kind"])
    return None


def _title(dataset: str) -> str:
    return experiment_data(dataset).title or dataset
