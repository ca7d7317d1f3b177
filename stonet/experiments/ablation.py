"""Ablation: one setting at a time, of the default network, the operator and the paper's network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stonet.config import Config, load_config
from stonet.data.field import Dataset
from stonet.errors import unknown_name
from stonet.experiments.budgets import ExperimentBudget
from stonet.experiments.cell import Cell, Result, Scores
from stonet.experiments.error_summary import summarise_errors, without_details
from stonet.experiments.figures import line_style, panels, save
from stonet.experiments.tables import Line, measured, stale_commits, unique
from stonet.models.registry import MODELS
from stonet.training.budget import Budget, train

NAME = "ablation"
DEFAULT, SEED, RACE = "default", "train.seed", "race"
RACED = {"network.anchor"}  # settings that a race chooses where data are few
SEEDS = ("0", "1", "2")


@dataclass(frozen=True)
class AblatedModel:
    """A model of which one setting at a time is varied.

    Args:
        model: name in the model registry.
        preset: of every budget but a minimal one and the paper's.
        factors: setting -> values, the model's own among them.
    """

    model: str
    preset: str
    factors: Mapping[str, tuple[str, ...]]

    def own_value(self, setting: str, preset: str) -> str:
        """The model's own value of a setting, as the table prints it.

        Args:
            setting: its full name, such as "operator.latent".
            preset: that is varied.
        """
        if setting in RACED:
            return RACE
        section, _, key = setting.partition(".")
        value = getattr(getattr(load_config(preset), section), key)
        if value is None:  # the model's default
            value = getattr(MODELS[self.model], key)
        return str(value).lower() if isinstance(value, bool) else str(value)


ABLATED_MODELS = {
    "paper": AblatedModel(
        "stonet-paper",
        "paper",
        {
            "paper.layers": ("1", "2"),
            "graph.levels": ("1", "2", "3"),
            "train.alpha": ("0.0", "0.5", "1.0"),
            "paper.frequencies": ("2", "12"),
            "paper.decoder": ("revised", "fixed"),
            "paper.terms": ("1", "3"),
            SEED: SEEDS,
        },
    ),
    "operator": AblatedModel(
        "stonet-operator",
        DEFAULT,
        {
            "operator.layers": ("1", "2"),
            "graph.levels": ("1", "2", "3"),
            "train.alpha": ("0.0", "0.1", "0.5", "1.0"),
            "operator.basis": ("lags", "modes"),
            SEED: SEEDS,
        },
    ),
    DEFAULT: AblatedModel(
        "stonet",
        DEFAULT,
        {
            "network.layers": ("0", "1", "2"),
            "graph.levels": ("1", "2", "3"),
            "network.kernels": ("1", "4", "8"),
            "network.heads": ("0", "4"),
            "network.mode_floor": ("1e-12", "1e-06", "0.001"),
            "network.anchor": (RACE, "last", "blend", "linear"),
            "network.sun": ("false", "true"),
            "train.optimiser": ("adam", "auto"),
            "train.fallback": ("false", "true"),
            SEED: SEEDS,
        },
    ),
}
MINIMAL = ("graph.levels", "network.layers")  # factors of a minimal budget
LINEAR_PERCENT = 100.0  # changes up to which the axis is linear
COLUMNS = {
    "dataset": "data set",
    "model": "model",
    "factor": "factor",
    "value": "value",
    "mae": "MAE",
    "rmse": "RMSE",
    "change": "change of the MAE (%)",
    "best_validation": "best validation loss",
    "steps": "steps",
}


def cells(
    datasets: Sequence[str], models: Sequence[str], seeds: int, budget: ExperimentBudget
) -> list[Cell]:
    """Each ablated model, and each other value of each factor; `models` selects factors."""
    factors = {short_name(s) for model in ABLATED_MODELS.values() for s in model.factors}
    for name in models:
        if name not in factors:
            raise unknown_name("factor", name, sorted(factors))
    cells = []
    for dataset in datasets:
        for name, model in ABLATED_MODELS.items():
            candidates = MINIMAL if budget.minimal and not models else tuple(model.factors)
            settings = [
                setting
                for setting in model.factors
                if setting in candidates and (short_name(setting) in models or not models)
            ]
            if settings:
                cells += _variants(dataset, name, settings, seeds, budget)
    return cells


def _variants(
    dataset: str, name: str, settings: Sequence[str], seeds: int, budget: ExperimentBudget
) -> list[Cell]:
    """One ablated model itself, and with each other value of each setting."""
    model = ABLATED_MODELS[name]
    preset = budget.preset if budget.minimal else model.preset
    variants = {name: ""} | {
        label(name, setting, value): f"{setting}={value}"
        for setting in settings
        for value in model.factors[setting]
        if value != model.own_value(setting, preset)
    }
    cells = []
    for text, change in variants.items():
        setting, _, value = change.partition("=")
        seed_varied = setting == SEED
        changes = () if seed_varied or not change else (change,)
        cells += [
            budget.cell(
                *(NAME, dataset, text, seed),
                model=model.model,
                preset=preset,
                settings=changes,
            )
            for seed in ([int(value)] if seed_varied else range(seeds))
        ]
    return cells


def short_name(setting: str) -> str:
    """The name of a factor: a setting without its section.

    Args:
        setting: its full name.
    """
    return setting.partition(".")[2]


def label(name: str, setting: str, value: str) -> str:
    """The label of an ablated model with one setting changed.

    Args:
        name: of the ablated model.
        setting: that is changed.
        value: its value.
    """
    return f"{'' if name == DEFAULT else f'{name} '}{short_name(setting)}={value}"


def measure(cell: Cell, dataset: Dataset, config: Config, budget: Budget) -> Scores:
    """Errors on the test part."""
    return without_details(summarise_errors(train(dataset, config, budget)))


def table(results: Sequence[Result]) -> list[Line]:
    """One line per data set, model, factor and value; `change` of the MAE in percent.

    The unchanged model is listed in each of its factors, under its own value.
    """
    lines = []
    for dataset in unique(result.cell.dataset for result in measured(results)):
        here = {
            r.cell.label: r
            for r in measured(results)
            if r.cell.dataset == dataset
            and (r.cell.label.endswith(f"seed={r.cell.seed}") or not r.cell.seed)
        }
        for name, model in ABLATED_MODELS.items():
            unchanged = here.get(name)
            for setting, values in model.factors.items():
                own = None
                if unchanged is not None:
                    own = model.own_value(setting, unchanged.cell.preset)
                rows = {
                    v: unchanged if v == own else here.get(label(name, setting, v)) for v in values
                }
                if sum(row is not None for row in rows.values()) < 2:
                    continue
                keys = {"dataset": dataset, "model": name, "factor": short_name(setting)}
                lines += [keys | _line(v, row, unchanged) for v, row in rows.items() if row]
    return lines


def _line(value: str, row: Result, unchanged: Result | None) -> Line:
    """The scores of one value, and their change against the unchanged model."""
    mae, training = row.scores["mae"], row.scores["training"]
    costs = ("best_validation", "steps", "seconds_per_epoch", "parameters")
    return {
        "value": value,
        "default": row is unchanged,
        "mae": mae,
        "rmse": row.scores["rmse"],
        "change": None if unchanged is None else 100 * (mae / unchanged.scores["mae"] - 1),
        **{key: training[key] for key in costs},
        "stale": stale_commits([row]),
    }


def figure(results: Sequence[Result], path: Path) -> None:
    """A panel per factor: change of the MAE by value, a line per data set."""
    lines = [line for line in table(results) if line["change"] is not None]
    shown = unique((line["model"], line["factor"]) for line in lines)
    datasets = unique(line["dataset"] for line in lines)
    if not shown:
        return
    titles = [factor if name == DEFAULT else f"{name}: {factor}" for name, factor in shown]
    drawn, grid = panels(titles, (3.6, 2.6))
    for axes, (name, factor) in zip(grid, shown, strict=True):
        factors = ABLATED_MODELS[name].factors
        values = next(factors[setting] for setting in factors if short_name(setting) == factor)
        here = [line for line in lines if (line["model"], line["factor"]) == (name, factor)]
        for rank, dataset in enumerate(datasets):
            by_value = {line["value"]: line for line in here if line["dataset"] == dataset}
            x = [i for i, value in enumerate(values) if value in by_value]
            y = [by_value[values[i]]["change"] for i in x]
            axes.plot(x, y, "-", lw=1.4, ms=5, label=dataset, **line_style(rank))
        axes.axhline(0.0, color="0.4", linewidth=0.8)
        if max(abs(line["change"]) for line in here) > LINEAR_PERCENT:
            axes.set_yscale("symlog", linthresh=10.0)
        axes.set_xticks(range(len(values)), values)
        axes.set_ylabel("change of the MAE (%)", fontsize=9)
    grid[0].legend(frameon=False, fontsize=9)
    save(drawn, path)
