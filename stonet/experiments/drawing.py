"""Canvases that the experiments' figures share; each figure is saved as one PNG file."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stonet.plotting.figures import DPI, png
from stonet.system.atomic import replacing

COLUMNS = 3


def panels(titles: list[str], size: tuple[float, float] = (3.9, 3.1)) -> tuple[Figure, list[Axes]]:
    """A panel for each title, at most three beside each other; light grid, no box."""
    columns = min(COLUMNS, len(titles))
    rows = math.ceil(len(titles) / columns)
    figure = Figure((columns * size[0], rows * size[1]), dpi=DPI, layout="constrained")
    every = list(np.ravel(figure.subplots(rows, columns, squeeze=False)))
    for axes, title in zip(every, titles, strict=False):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.9", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.set_title(title, fontsize=11)
        axes.tick_params(labelsize=9)
    for axes in every[len(titles) :]:
        axes.set_visible(False)
    return figure, every[: len(titles)]


def save(figure: Figure, path: Path) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as part:
        part.write_bytes(png(figure))
