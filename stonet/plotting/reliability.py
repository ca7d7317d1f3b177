"""The reliability figure: coverage of intervals by lead, distance and month, and the PIT."""

from __future__ import annotations

from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from stonet.evaluation.reliability import LEVELS, By, Reliability
from stonet.plotting.fields import Tips
from stonet.plotting.figures import DPI, MARKERS, PALETTE, lead_unit

PanelName = By | Literal["pit"]
PANELS: dict[PanelName, str] = {  # labels of the x axis
    "lead": "lead (steps)",
    "distance": "distance to a station (bin; 0: own history)",
    "month": "month",
    "pit": "probability of the observed value (PIT)",
}


def reliability_figure(reliability: Reliability, title: str = "") -> Figure:
    """Shares of observed values within the 50 % and 90 % intervals, and a histogram of the PIT.

    Calibrated intervals lie on the dashed lines, and their PIT is uniform.

    Args:
        reliability: of a part of the data.
        title: above the panels.

    Example:
        >>> reliability_figure(reliability(trained, task, calibration)).savefig("reliability.png")
    """
    figure = Figure(figsize=(10, 6.4), dpi=DPI, layout="constrained")
    for axes, panel in zip(figure.subplots(2, 2).ravel(), PANELS, strict=True):
        draw_reliability(axes, reliability, panel)
    figure.suptitle(title)
    return figure


def draw_reliability(
    axes: Axes, reliability: Reliability, panel: PanelName, step: int | None = None
) -> Tips:
    """One panel of the figure.

    Args:
        axes: to draw on.
        reliability: of a part of the data.
        panel: a name in `PANELS`.
        step: between two leads, in nanoseconds; None: leads are counted in steps.

    Returns:
        The texts of the marks.
    """
    axes.set_xlabel(PANELS[panel])
    axes.spines[["top", "right"]].set_visible(False)
    if panel == "pit":
        _draw_pit(axes, reliability)
        return []
    size = 1.0
    if panel == "lead":
        unit, size = lead_unit(step, max(reliability.coverage("lead", LEVELS[0]), default=1))
        axes.set_xlabel(f"lead ({unit})")
    return _draw_coverage(axes, reliability, panel, size)


def _draw_coverage(axes: Axes, reliability: Reliability, by: By, size: float) -> Tips:
    """A line for each level; `size` is the length of a step of the x axis."""
    tips: Tips = []
    number_of = reliability.counts
    for number, level in enumerate(LEVELS):
        coverage = reliability.coverage(by, level)
        label = f"{100 * level:g} % intervals"
        (line,) = axes.plot(
            [size * at for at in coverage],
            [100 * share for share in coverage.values()],
            marker=MARKERS[number],
            markersize=4,
            color=PALETTE[number],
            label=label,
        )
        texts = [
            f"{by} {size * at:g}: {100 * share:.1f} % of {number_of[by, at, level][0]:,.0f}"
            for at, share in coverage.items()
        ]
        tips.append((line, [f"{label}, {text}" for text in texts]))
        axes.axhline(100 * level, color=PALETTE[number], linewidth=0.8, linestyle="--")
    axes.set_ylim(0, 100)
    axes.set_ylabel("values within (%)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=9)
    return tips


def _draw_pit(axes: Axes, reliability: Reliability) -> None:
    """Relative frequencies of the forecast probability of the truth."""
    total, bins = max(reliability.pit.sum(), 1), len(reliability.pit)
    places = [(number + 0.5) / bins for number in range(bins)]
    axes.bar(places, reliability.pit / total * bins, width=0.9 / bins, color=PALETTE[0])
    axes.axhline(1.0, color="0.4", linewidth=0.8, linestyle="--")
    axes.set_ylabel("relative frequency")
