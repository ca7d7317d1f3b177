"""The paper's experiments beside ours: what corresponds, what was computed, what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stonet.experiments.datasets import EXPERIMENT_DATA
from stonet.experiments.tables import markdown_table


@dataclass(frozen=True)
class Counterpart:
    """An experiment of the paper, and what corresponds to it here.

    Args:
        paper: what the paper did.
        experiment: name of ours.
        ours: what ours does, in words.
        differs: what the published budget leaves out.
    """

    paper: str
    experiment: str
    ours: str
    differs: str


COUNTERPARTS = (
    Counterpart(
        "Table 3: MAE and RMSE on six data sets, five seeds, eight baselines",
        "comparison",
        "nine tasks; further rivals, reference forecasts, significance, feedback, intervals",
        "a training takes minutes, not 100 epochs; one seed of the rivals",
    ),
    Counterpart(
        "Table 4: Deviation at unseen points; sweep of unseen/seen points",
        "inductive",
        "all tasks, ratios 1/8 to 1, points with and without a past, whole regions",
        "downsampled grids (training on fewer points, Trans.) except Wave's own",
    ),
    Counterpart(
        "Sweep of the labelled target times n_t'",
        "irregular",
        "all tasks; also missing inputs, missing frames, times between the steps",
        "one seed",
    ),
    Counterpart(
        "Table 5: layers, levels, alpha, embedding on two data sets",
        "ablation",
        "four tasks, of the paper's network, the operator and the default network",
        "one seed; another seed is a factor of its own",
    ),
    Counterpart(
        "Table 6: time, memory and error of the ODE decoder",
        "cost",
        "the same decoders, and one with a merged branch, on stand-ins of Solar and Humidity",
        "a V100: the hardware differs, so only ratios can be compared",
    ),
    Counterpart(
        "Maps of forecasts and errors",
        "comparison",
        "maps of the MAE by point, and worst points",
        "forecasts are drawn by `stonet plot` and `stonet report`",
    ),
)


def overview_section(counts: Mapping[str, tuple[int, int]]) -> list[str]:
    """The table "the paper's experiment, ours, what is missing".

    Args:
        counts: cells that are stored and that should be, by experiment.
    """
    rows = []
    for part in COUNTERPARTS:
        stored, expected = counts[part.experiment]
        lacking = f"; {expected - stored} of {expected} cells" if stored < expected else ""
        rows.append([part.paper, f"`{part.experiment}`: {part.ours}", f"{part.differs}{lacking}"])
    titles = [
        EXPERIMENT_DATA[name].title for name in EXPERIMENT_DATA if EXPERIMENT_DATA[name].paper
    ]
    return [
        *markdown_table(["the paper's experiment", "ours", "what is missing here"], rows),
        f"The data here are {', '.join(titles)}. The paper's own six sets and its protocol (preset "
        "`paper`, 100 epochs, five seeds, all points) are `stonet reproduce all --budget full`, "
        "which needs the files of `stonet data fetch` and prints the estimated hours first.",
        "",
    ]
