"""Figure files, and stations on a map with the coastline."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stonet.errors import UsageError
from stonet.plotting.figures import DPI
from stonet.plotting.maps import MapProjection
from stonet.system.atomic import disk_errors_explained, replacing

SUFFIXES = (".png", ".svg")


def check_figure(path: Path | None) -> None:
    """Refuse a name that no figure can be written to, before any work is done.

    Args:
        path: of the figure; None: no figure is wanted.

    Raises:
        UsageError: the suffix is none of a figure, or the folder does not exist.
    """
    if path is None:
        return
    if path.suffix.lower() not in SUFFIXES or not path.parent.is_dir():
        raise UsageError(
            f"Cannot draw '{path}'; expected a .png or .svg file in an existing folder."
        )


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure atomically, in the format of the suffix.

    Args:
        figure: to write.
        path: ending in .png or .svg.
    """
    with disk_errors_explained(path), replacing(path) as stage:
        figure.savefig(stage, dpi=DPI)


def draw_region(axes: Axes, projection: MapProjection, title: str = "") -> None:
    """Limits and labels of a map, with the coastline under everything else.

    Args:
        axes: to draw on.
        projection: of the map.
        title: above the map.
    """
    projection.format_axes(axes)
    axes.set_facecolor("none" if projection.is_global else "0.97")
    x_label, y_label = projection.labels
    axes.set(xlabel=x_label, ylabel=y_label, title=title)
