"""Ablation: one setting of the default at a time. The paper's four factors, and ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stonet.comparison import Budget, train
from stonet.config import Config, load_config
from stonet.errors import UsageError, unknown_name
from stonet.experiments.budgets import Effort
from stonet.experiments.cells import Cell, Result, Scores
from stonet.experiments.drawing import panels, save
from stonet.experiments.scores import errors_of, in_short
from stonet.field import Dataset
from stonet.model import STONetwork
from stonet.plots import MARKERS, PALETTE

NAME = "ablation"
DEFAULT, SEED = "default", "train.seed"
FACTORS: dict[str, tuple[str, ...]] = {  # setting -> values; the default is among them
    "network.latent": ("8", "16", "32"),
    "network.layers": ("1", "2", "3"),
    "graph.levels": ("1", "2", "3"),
    "train.alpha": ("0.0", "0.1", "0.5", "1.0"),
    "network.base": ("none", "persistence", "ridge"),
    "network.expert": ("0", "128"),
    "network.sun": ("false", "true"),
    "network.kernel": ("diag", "full"),
    "network.decoder": ("revised", "literal", "fixed", "ode"),
    "network.terms": ("1", "3"),
    "train.run": ("1", "4"),
    SEED: ("0", "1", "2"),  # what chance does
}
FEW = ("graph.levels", "network.base")
WIDE = 100.0  # percent from which the scale is no longer straight
PAPERS = ("network.latent", "network.layers", "graph.levels", "train.alpha")
COLUMNS = ("dataset", "factor", "value", "mae", "rmse", "change", "best_validation", "steps")


def cells(datasets: Sequence[str], models: Sequence[str], seeds: int, budget: Effort) -> list[Cell]:
    """The default, and each other value of each factor; `models` are the factors wanted."""
    short = {setting.partition(".")[2]: setting for setting in FACTORS}
    for name in models:
        if name not in short:
            raise unknown_name("factor", name, short)
    wanted = [short[name] for name in models] or (FEW if budget.few else FACTORS)
    variants = {DEFAULT: ""} | {
        f"{setting.partition('.')[2]}={value}": f"{setting}={value}"
        for setting in wanted
        for value in FACTORS[setting]
        if value != default_of(setting, budget.preset)
    }
    found = []
    for dataset in datasets:
        for label, setting in variants.items():
            other, _, value = setting.partition("=")
            drawn = [int(value)] if other == SEED else range(seeds)
            asked = () if other == SEED or not setting else (setting,)
            found += [
                budget.cell(NAME, dataset, label, s, settings=asked, training=budget.fixed)
                for s in drawn
            ]
    return found


def default_of(setting: str, preset: str = "default") -> str:
    """The preset's value, as the table writes it."""
    section, _, key = setting.partition(".")
    value = getattr(getattr(load_config(preset), section), key)
    if value is None:  # left to the model
        value = getattr(STONetwork, key)
    return str(value).lower() if isinstance(value, bool) else str(value)


def measure(cell: Cell, dataset: Dataset, config: Config, budget: Budget) -> Scores:
    """Errors on the test part; or why the model cannot be built so."""
    try:
        return in_short(errors_of(train(dataset, config, budget)))
    except UsageError as error:  # a package that is not installed
        return {"skipped": str(error)}


def table(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One line for each task, factor and value; `change` is the MAE's, in percent of the default's.

    The default stands in each factor's lines, under its own value.
    """
    lines = []
    known = [result for result in results if "skipped" not in result.scores]
    for dataset in dict.fromkeys(result.cell.dataset for result in known):
        mine = (result for result in known if result.cell.dataset == dataset)
        here = {
            r.cell.label: r
            for r in mine
            if r.cell.label == f"seed={r.cell.seed}" or not r.cell.seed
        }
        usual = here.get(DEFAULT)
        for setting, values in FACTORS.items():
            factor = setting.partition(".")[2]
            own = None if usual is None else default_of(setting, usual.cell.preset)
            rows = {v: usual if v == own else here.get(f"{factor}={v}") for v in values}
            if sum(row is not None for row in rows.values()) < 2:
                continue
            lines += [
                _line(dataset, factor, value, row, usual) for value, row in rows.items() if row
            ]
    return lines


def _line(
    dataset: str, factor: str, value: str, row: Result, usual: Result | None
) -> dict[str, Any]:
    scores, training = row.scores, row.scores["training"]
    change = None if usual is None else 100 * (scores["mae"] / usual.scores["mae"] - 1)
    return {
        "dataset": dataset,
        "factor": factor,
        "value": value,
        "default": row is usual,
        "mae": scores["mae"],
        "rmse": scores["rmse"],
        "change": change,
        "best_validation": training["best_validation"],
        "steps": training["steps"],
        "seconds_per_epoch": training["seconds_per_epoch"],
        "parameters": training["parameters"],
        "stale": [row.commit] if row.stale else [],
    }


def figure(results: Sequence[Result], path: Path) -> None:
    """A panel for each factor: how the error changes with its value, a line for each task."""
    lines = [line for line in table(results) if line["change"] is not None]
    factors = list(dict.fromkeys(line["factor"] for line in lines))
    tasks = list(dict.fromkeys(line["dataset"] for line in lines))
    if not factors:
        return
    drawn, every = panels(factors, (3.6, 2.6))
    for axes, factor in zip(every, factors, strict=True):
        values = FACTORS[next(s for s in FACTORS if s.endswith(f".{factor}"))]
        for rank, task in enumerate(tasks):
            mine = {x["value"]: x for x in lines if (x["factor"], x["dataset"]) == (factor, task)}
            across = [i for i, value in enumerate(values) if value in mine]
            up = [mine[values[i]]["change"] for i in across]
            colour, marker = PALETTE[rank % len(PALETTE)], MARKERS[rank % len(MARKERS)]
            axes.plot(across, up, marker + "-", color=colour, lw=1.4, ms=5, label=task)
        axes.axhline(0.0, color="0.4", linewidth=0.8)
        if max(abs(x["change"]) for x in lines if x["factor"] == factor) > WIDE:
            axes.set_yscale("symlog", linthresh=10.0)
        axes.set_xticks(range(len(values)), values)
        axes.set_ylabel("MAE, % of default's", fontsize=9)
    every[0].legend(frameon=False, fontsize=9)
    save(drawn, path)
