"""Reference forecasts of a task: what a trained model must beat."""

from __future__ import annotations

from stonet.linear.regression import Settled
from stonet.models.baselines.persistence import LinearForecaster, no_daily
from stonet.models.forecaster import Forecaster
from stonet.models.registry import REFERENCE_FORECASTS, build_model
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel


def references_of(
    trained: TrainedModel, task: Task, fitted: bool = True, settled: Settled | None = None
) -> dict[str, Forecaster]:
    """The reference forecasts, fitted to the task's training part, by name.

    Daily persistence is left out where the inputs are shorter than a day or have no hours. If the
    model has a linear base, that base is the linear reference.

    Args:
        trained: a trained model.
        task: the data.
        fitted: whether references are fitted to the training part. If all of the data are scored,
            they would have seen what they forecast: only those without a fit remain.
        settled: what validation has decided for the linear forecast (None: it decides now).

    Example:
        >>> references_of(trained, task)["persistence"]
    """
    models: dict[str, Forecaster] = {}
    base = getattr(trained.model, "base", None)
    for name in REFERENCE_FORECASTS:
        if name == trained.config.model or (
            name == "daily" and no_daily(trained.time_spec) is not None
        ):
            continue
        if name == "linear" and base is not None and base.kind == "ridge":
            models[name] = LinearForecaster(base)
            continue
        if not fitted and name not in ("persistence", "daily"):
            continue
        config = trained.config.model_copy(update={"model": name})
        models[name] = build_model(config, trained.time_spec, len(trained.channels), task.nodes)
        if fitted:
            train = task.windows("train", task.stride)
            if isinstance(model := models[name], LinearForecaster):
                model.base.settled = settled
            models[name].fit_closed_form(train, task.validation_windows, task.nodes)
    return models
