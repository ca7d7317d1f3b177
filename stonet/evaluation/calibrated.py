"""Scored forecasts with their corrections and intervals, as they were possible when issued."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float64, Int64

from stonet.calibration.apply import Corrector, Quantiles, Request, Values
from stonet.calibration.conformal import Calibration
from stonet.calibration.fit import calibrate
from stonet.calibration.past_forecasts import PastForecasts
from stonet.calibration.series import series_of
from stonet.data.windows import Windows
from stonet.evaluation.probabilistic import QUANTILES
from stonet.models.forecaster import Forecaster
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel

Index = Int64[np.ndarray, "_"]  # positions of points


class PartCorrector:
    """Corrects the forecasts of windows of one part of the data.

    Args:
        calibration: of the model.
        model: whose forecasts these are.
        trained: gives scaler and times.
        task: the data.
        part: "test", "validation", "train" or "all".
        nodes: positions of the points whose history is given.
        queries: positions of the points that are scored.
        feedback: whether forecasts are corrected by recent errors.
    """

    def __init__(
        self,
        calibration: Calibration,
        model: Forecaster,
        trained: TrainedModel,
        task: Task,
        part: str,
        nodes: Index,
        queries: Index,
        feedback: bool = True,
    ) -> None:
        self.time_spec, self.queries = task.time_spec, task.dataset.points.take(queries)
        self.correctors, self.first, self.offset = [], [0], []
        graphs = None
        for whole, offset, field in series_of(task, part):
            past = PastForecasts(model, trained, whole, nodes, graphs=graphs)
            graphs = past.graphs
            self.correctors.append(Corrector(calibration, past, feedback))
            self.offset.append(offset)
            self.first.append(self.first[-1] + len(field.times))

    def apply(
        self,
        windows: Windows,
        chosen: Int64[np.ndarray, " batch"],
        forecast: Float64[np.ndarray, "batch future query channel"],
    ) -> tuple[Values, Quantiles]:
        """The corrected forecasts of these windows and their `QUANTILES`.

        Args:
            windows: of the corrector's part.
            chosen: positions of windows.
            forecast: of these windows, in the data's units.
        """
        starts = windows.starts[chosen]
        series = np.searchsorted(self.first, starts, side="right") - 1
        corrected = forecast.copy()
        quantiles = np.empty((len(QUANTILES), *forecast.shape))
        for number in np.unique(series):
            rows = np.flatnonzero(series == number)
            corrector = self.correctors[number]
            local = starts[rows] - self.first[number] + self.offset[number]
            issues = local + self.time_spec.past - 1
            future = issues[:, None] + np.arange(1, self.time_spec.horizon + 1)
            request = Request(issues, self.queries, corrector.past.field.times[future])
            corrected[rows], found = corrector.apply(forecast[rows], request, QUANTILES)
            assert found is not None  # quantiles were requested
            quantiles[:, rows] = found
        return corrected, quantiles


def calibrate_models(
    models: Mapping[str, Forecaster], trained: TrainedModel, task: Task, known: Calibration | None
) -> dict[str, Calibration]:
    """A calibration for each model; those without any known error are left out.

    Without a validation part, which calibrations are fitted to, only `known` is left.

    Args:
        models: by name.
        trained: gives scaler, times and the name of the trained model.
        task: the data that the models were fitted to.
        known: of the trained model.
    """
    found = {}
    for name, model in models.items():
        if model is trained.model:
            found[name] = known
        elif "validation" in task.parts:
            found[name] = calibrate(trained, task, model)
    return {name: calibration for name, calibration in found.items() if calibration is not None}
