"""The reliability figure: coverage of intervals by lead, distance and month, and the PIT."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from stonet.evaluation.reliability import LEVELS, By, Reliability
from stonet.plotting.figures import MARKERS, PALETTE

AXIS_LABELS: dict[By, str] = {
    "lead": "lead (steps)",
    "distance": "distance to the nearest station (bin; 0: with history)",
    "month": "month",
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
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    panels = figure.subplots(2, 2).ravel()
    for axes, (by, label) in zip(panels, AXIS_LABELS.items(), strict=False):
        _draw_coverage(axes, reliability, by)
        axes.set_xlabel(label)
    _draw_pit(panels[-1], reliability)
    panels[0].legend(frameon=False, fontsize=8)
    figure.suptitle(title)
    return figure


def _draw_coverage(axes: Axes, reliability: Reliability, by: By) -> None:
    """A line for each level."""
    for number, level in enumerate(LEVELS):
        coverage = reliability.coverage(by, level)
        label = f"{100 * level:g} % intervals"
        axes.plot(
            list(coverage),
            [100 * share for share in coverage.values()],
            marker=MARKERS[number],
            markersize=4,
            color=PALETTE[number],
            label=label,
        )
        axes.axhline(100 * level, color=PALETTE[number], linewidth=0.8, linestyle="--")
    axes.set_ylim(0, 100)
    axes.set_ylabel("values within (%)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_pit(axes: Axes, reliability: Reliability) -> None:
    """Relative frequencies of the forecast probability of the truth."""
    total, bins = max(reliability.pit.sum(), 1), len(reliability.pit)
    places = [(number + 0.5) / bins for number in range(bins)]
    axes.bar(places, reliability.pit / total * bins, width=0.9 / bins, color=PALETTE[0])
    axes.axhline(1.0, color="0.4", linewidth=0.8, linestyle="--")
    axes.set_xlabel("forecast probability of values up to the observed one (PIT)")
    axes.set_ylabel("relative frequency")
