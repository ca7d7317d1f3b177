"""Ablation: one setting at a time, of the default and of the operator by itself.

The paper's four factors are the operator's. On top of base and experts it has little to learn in a
short time, and whatever it is made of changes little; so it is taken apart where it stands alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stonet.config import Config, load_config
from stonet.data.field import Dataset
from stonet.errors import UsageError, unknown_name
from stonet.experiments.budgets import ExperimentBudget
from stonet.experiments.cell import Cell, Result, Scores
from stonet.experiments.drawing import panels, save
from stonet.experiments.error_summary import errors_of, in_short
from stonet.models.stonet import STONetwork
from stonet.plotting.figures import MARKERS, PALETTE
from stonet.training.budget import Budget, train

NAME = "ablation"
DEFAULT, SEED = "default", "train.seed"
CHANCE = (SEED, ("0", "1", "2"))  # what another seed does


@dataclass(frozen=True)
class Whole:
    """What is taken apart: settings that it always has, and those that are changed."""

    settings: tuple[str, ...]
    factors: Mapping[str, tuple[str, ...]]  # setting -> values; the whole's own is among them

    def own(self, setting: str, preset: str = "default") -> str:
        """The whole's own value, as the table writes it."""
        section, _, key = setting.partition(".")
        value = getattr(getattr(load_config(preset, None, self.settings), section), key)
        if value is None:  # left to the model
            value = getattr(STONetwork, key)
        return str(value).lower() if isinstance(value, bool) else str(value)


WHOLES = {
    "operator": Whole(
        ("network.base=none", "network.residual_width=0"),
        {
            "network.latent": ("8", "16", "32"),
            "network.layers": ("1", "2", "3"),
            "graph.levels": ("1", "2", "3"),
            "train.alpha": ("0.0", "0.1", "0.5", "1.0"),
            "network.kernel": ("diag", "full"),
            "network.decoder": ("revised", "literal", "fixed", "ode"),
            "network.terms": ("1", "3"),
            "train.consecutive": ("1", "4"),
            CHANCE[0]: CHANCE[1],
        },
    ),
    DEFAULT: Whole(
        (),
        {
            "network.base": ("none", "persistence", "ridge"),
            "network.residual_width": ("0", "128"),
            "network.sun": ("false", "true"),
            CHANCE[0]: CHANCE[1],
        },
    ),
}
FEW = ("graph.levels", "network.base")
WIDE = 100.0  # percent from which the scale is no longer straight
COLUMNS = (
    *("dataset", "whole", "factor", "value", "mae", "rmse", "change", "best_validation", "steps"),
)


def cells(
    datasets: Sequence[str], models: Sequence[str], seeds: int, budget: ExperimentBudget
) -> list[Cell]:
    """Each whole, and each other value of each factor; `models` are the factors wanted."""
    known = {short(setting) for whole in WHOLES.values() for setting in whole.factors}
    for name in models:
        if name not in known:
            raise unknown_name("factor", name, sorted(known))
    found = []
    for dataset in datasets:
        for name, whole in WHOLES.items():
            settings = FEW if budget.few and not models else whole.factors
            wanted = [
                s for s in whole.factors if s in settings and (short(s) in models or not models)
            ]
            if wanted:
                found += _cells(dataset, name, wanted, seeds, budget)
    return found


def _cells(
    dataset: str, name: str, wanted: Sequence[str], seeds: int, budget: ExperimentBudget
) -> list[Cell]:
    whole, training = WHOLES[name], budget.fixed.get(name)
    variants = {name: ""} | {
        label(name, setting, value): f"{setting}={value}"
        for setting in wanted
        for value in whole.factors[setting]
        if value != whole.own(setting, budget.preset)
    }
    found = []
    for text, setting in variants.items():
        other, _, value = setting.partition("=")
        drawn = [int(value)] if other == SEED else range(seeds)
        asked = whole.settings if other == SEED or not setting else (*whole.settings, setting)
        found += [
            budget.cell(NAME, dataset, text, s, settings=asked, training=training) for s in drawn
        ]
    return found


def short(setting: str) -> str:
    """A factor's name."""
    return setting.partition(".")[2]


def label(name: str, setting: str, value: str) -> str:
    """Of a whole with one setting changed."""
    return f"{'' if name == DEFAULT else f'{name} '}{short(setting)}={value}"


def measure(cell: Cell, dataset: Dataset, config: Config, budget: Budget) -> Scores:
    """Errors on the test part; or why the model cannot be built so."""
    try:
        return in_short(errors_of(train(dataset, config, budget)))
    except UsageError as error:  # a package that is not installed
        return {"skipped": str(error)}


def table(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One line for each task, whole, factor and value; `change` is the MAE's, in percent.

    A whole stands in each of its factors' lines, under its own value.
    """
    lines = []
    known = [result for result in results if "skipped" not in result.scores]
    for dataset in dict.fromkeys(result.cell.dataset for result in known):
        mine = (result for result in known if result.cell.dataset == dataset)
        here = {
            r.cell.label: r
            for r in mine
            if r.cell.label.endswith(f"seed={r.cell.seed}") or not r.cell.seed
        }
        for name, whole in WHOLES.items():
            usual = here.get(name)
            for setting, values in whole.factors.items():
                own = None if usual is None else whole.own(setting, usual.cell.preset)
                rows = {v: usual if v == own else here.get(label(name, setting, v)) for v in values}
                if sum(row is not None for row in rows.values()) < 2:
                    continue
                what = {"dataset": dataset, "whole": name, "factor": short(setting)}
                lines += [what | _line(value, row, usual) for value, row in rows.items() if row]
    return lines


def _line(value: str, row: Result, usual: Result | None) -> dict[str, Any]:
    scores, training = row.scores, row.scores["training"]
    change = None if usual is None else 100 * (scores["mae"] / usual.scores["mae"] - 1)
    return {
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
    shown = list(dict.fromkeys((line["whole"], line["factor"]) for line in lines))
    tasks = list(dict.fromkeys(line["dataset"] for line in lines))
    if not shown:
        return
    titles = [factor if name == DEFAULT else f"{name}: {factor}" for name, factor in shown]
    drawn, every = panels(titles, (3.6, 2.6))
    for axes, (name, factor) in zip(every, shown, strict=True):
        factors = WHOLES[name].factors
        values = next(factors[setting] for setting in factors if short(setting) == factor)
        here = [line for line in lines if (line["whole"], line["factor"]) == (name, factor)]
        for rank, task in enumerate(tasks):
            mine = {x["value"]: x for x in here if x["dataset"] == task}
            across = [i for i, value in enumerate(values) if value in mine]
            up = [mine[values[i]]["change"] for i in across]
            colour, marker = PALETTE[rank % len(PALETTE)], MARKERS[rank % len(MARKERS)]
            axes.plot(across, up, marker + "-", color=colour, lw=1.4, ms=5, label=task)
        axes.axhline(0.0, color="0.4", linewidth=0.8)
        if max(abs(line["change"]) for line in here) > WIDE:
            axes.set_yscale("symlog", linthresh=10.0)
        axes.set_xticks(range(len(values)), values)
        axes.set_ylabel("MAE, % of the whole's", fontsize=9)
    every[0].legend(frameon=False, fontsize=9)
    save(drawn, path)
