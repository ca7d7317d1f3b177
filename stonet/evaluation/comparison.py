"""Models side by side: the same windows, scaler, loss, seeds and budget; one table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from stonet.calibration.fit import calibrate
from stonet.config import Config, make_config
from stonet.data.field import Dataset
from stonet.errors import UsageError
from stonet.evaluation.metrics import Record
from stonet.evaluation.scoring import evaluate
from stonet.system.progress import ProgressCallback, ignore_progress
from stonet.training.budget import Budget, TrainingCost, train


@dataclass(frozen=True)
class Comparison:
    """Costs and scores of all trainings, and the models that could not be trained.

    Args:
        costs: one for each training.
        records: tidy scores, as of `metrics.Statistics.records`.
        skipped: model -> reason.
        budget: of each training, as text.
    """

    costs: list[TrainingCost]
    records: list[Record]
    skipped: dict[str, str]
    budget: str

    def to_json(self) -> dict[str, Any]:
        """The comparison as a JSON document; the costs are its "rows"."""
        return {
            "budget": self.budget,
            "rows": [asdict(cost) for cost in self.costs],
            "records": self.records,
            "skipped": self.skipped,
        }


def compare(
    dataset: Dataset,
    config: Config,
    models: Sequence[str],
    budget: Budget,
    seeds: Sequence[int] = (0,),
    on_progress: ProgressCallback = ignore_progress,
    feedback: bool = False,
) -> Comparison:
    """Train every model with every seed, and score all of them on the test part.

    Args:
        dataset: with unseen points or without.
        config: of all models; `model` and `train.seed` are replaced.
        models: names in `stonet.models.registry.MODELS`.
        budget: of each training.
        seeds: each model is trained once with each.
        on_progress: called with trainings done, their total, and a label.
        feedback: whether the forecasts of every model are corrected by its own recent errors; then
            intervals are scored too.

    Raises:
        UsageError: if no model could be trained.

    Example:
        >>> comparison = compare(dataset, load_config(), ["stonet", "linear"], Budget(epochs=5))
        >>> summary(comparison)[0]["model"]
        'stonet'
    """
    costs: list[TrainingCost] = []
    records: list[Record] = []
    skipped: dict[str, str] = {}
    pairs = [(model, seed) for model in models for seed in seeds]
    for number, (model, seed) in enumerate(pairs):
        on_progress(number, len(pairs), f"{model}, seed {seed}")
        if model in skipped:
            continue
        try:
            cost, scores = train_one(dataset, _with_model(config, model, seed), budget, feedback)
        except UsageError as error:  # such as daily persistence of data without hours
            skipped[model] = str(error)
            continue
        costs.append(cost)
        records += scores
    on_progress(len(pairs), len(pairs), "done")
    if not costs:
        raise UsageError(f"No model could be run: {'; '.join(skipped.values())}")
    return Comparison(costs, records, skipped, str(budget))


def train_one(
    dataset: Dataset, config: Config, budget: Budget, feedback: bool = False
) -> tuple[TrainingCost, list[Record]]:
    """Train one model with one seed, and score it on the test part, as `fit` would leave it.

    Args:
        dataset: training, validation and test data.
        config: of the model, with its seed.
        budget: of the training.
        feedback: whether its forecasts are corrected by its own recent errors.
    """
    result = train(dataset, config, budget)
    models = {config.model: result.trained.model}
    calibration = calibrate(result.trained, result.task) if feedback else None
    found = None if calibration is None else {config.model: calibration}
    return result.cost, evaluate(result.trained, result.task, models=models, calibrations=found)


def summary(comparison: Comparison, points: str = "seen") -> list[dict[str, Any]]:
    """One line for each model, the lowest MAE first: means and standard deviations over seeds.

    Args:
        comparison: of `compare`.
        points: "seen", "unseen" or "unseen-no-history".

    Returns:
        dictionaries of metrics over all leads and channels, `skill` over persistence (None
        where persistence was not compared), and costs; None where there is no value.
    """
    lines = []
    channel = _overall_channel(comparison.records)
    for model in dict.fromkeys(cost.model for cost in comparison.costs):
        costs = [cost for cost in comparison.costs if cost.model == model]
        line: dict[str, Any] = {"model": model, "points": points, "seeds": len(costs)}
        for metric in ("mae", "rmse", "mape", "bias"):
            values = [
                r["value"]
                for r in comparison.records
                if (r["model"], r["points"], r["channel"], r["lead"], r["metric"])
                == (model, points, channel, "all", metric)
                and r["value"] is not None
            ]
            line[metric] = float(np.mean(values)) if values else None
            line[f"{metric}_std"] = float(np.std(values)) if len(values) > 1 else None
        line["parameters"] = costs[0].parameters
        line["steps"] = costs[0].steps
        for name in ("seconds", "cpu_seconds", "seconds_per_epoch", "peak_mb"):
            measured = [value for cost in costs if (value := getattr(cost, name)) is not None]
            line[name] = float(np.mean(measured)) if measured else None
        lines.append(line)
    reference = next((line["mae"] for line in lines if line["model"] == "persistence"), None)
    for line in lines:
        has_skill = reference and line["mae"] is not None
        line["skill"] = 1 - line["mae"] / reference if has_skill else None
    return sorted(lines, key=lambda line: math.inf if line["mae"] is None else line["mae"])


def _with_model(config: Config, model: str, seed: int) -> Config:
    """The configuration of another model and seed."""
    values = config.model_dump(exclude_unset=True)  # what is not set may be chosen by a race
    values["model"], values["train"] = model, values.get("train", {}) | {"seed": seed}
    return make_config(values)


def _overall_channel(records: list[Record]) -> str:
    """The channel name under which scores over all channels are recorded."""
    channels = dict.fromkeys(str(r["channel"]) for r in records)
    return "all" if "all" in channels else next(iter(channels))
