"""Calibrated forecasts: corrected by recent errors, with quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stonet.calibration.apply import Corrector, Request
from stonet.calibration.conformal import Calibration, interval_levels
from stonet.calibration.past_forecasts import PastForecasts, frames_needed
from stonet.data.dates import Times
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.data.quantile_field import QuantileField
from stonet.errors import UsageError
from stonet.inference.forecast import Correction, forecast, forecast_to_file
from stonet.inference.session import Session
from stonet.training.trained_model import TrainedModel


def calibrated_forecast(
    trained: TrainedModel,
    calibration: Calibration | None,
    field: Field,
    at: Points | None = None,
    times: Times | None = None,
    memory: int | str | None = None,
    session: Session | None = None,
    feedback: bool = True,
) -> Field:
    """As `stonet.inference.forecast.forecast`, corrected by recent errors.

    They are those of the forecasts that the model would have made from earlier frames of the
    field; `frames_needed` frames are enough, and fewer give a smaller correction.

    Args:
        trained: a trained model.
        calibration: of the model (None: no correction).
        field: observations; the issue time is its last time.
        at: the query points (None: the field's points).
        times: leads, dates or nanoseconds (None: the trained leads).
        memory: that the whole process may take.
        session: of this model and these points.
        feedback: whether the forecast is corrected.
    """
    result = forecast(trained, field, at, times, memory, session)
    correct = correction_of(trained, calibration, field, feedback)
    if correct is None:
        return result
    values = correct(result.values[None], result.points, result.times)[0]
    return Field.trusted(**vars(result) | {"values": values})


def quantile_forecast(
    trained: TrainedModel,
    calibration: Calibration | None,
    field: Field,
    quantiles: Sequence[float],
    at: Points | None = None,
    times: Times | None = None,
    memory: int | str | None = None,
    session: Session | None = None,
    feedback: bool = True,
) -> QuantileField:
    """A forecast with quantiles; see `calibrated_forecast` for the other arguments.

    Args:
        trained: a trained model.
        calibration: of the model.
        field: observations; the issue time is its last time.
        quantiles: increasing numbers such as 0.05, 0.5, 0.95.
        at: the query points (None: the field's points).
        times: leads, dates or nanoseconds (None: the trained leads).
        memory: that the whole process may take.
        session: of this model and these points.
        feedback: whether the forecast is corrected.

    Raises:
        UsageError: if there is no calibration, or quantiles are not valid.

    Example:
        >>> quantile_forecast(trained, calibration, field, [0.05, 0.5, 0.95]).interval(90)
    """
    interval_levels(quantiles)
    calibration = required(calibration)
    result = forecast(trained, field, at, times, memory, session)
    corrector = Corrector(calibration, PastForecasts(trained.model, trained, field), feedback)
    return with_calibration(corrector, result, quantiles)


def with_calibration(
    corrector: Corrector, result: Field, quantiles: Sequence[float]
) -> QuantileField:
    """A forecast from the last frame of a field, corrected and with quantiles.

    Args:
        corrector: of the model; its past forecasts hold the field.
        result: the forecast.
        quantiles: increasing numbers; none of them gives no quantiles.
    """
    request = Request(_last(corrector.past.field), result.points, result.times[None])
    values, found = corrector.apply(result.values[None].astype(np.float64), request, quantiles)
    corrected = Field.trusted(**vars(result) | {"values": values[0].astype(np.float32)})
    empty = np.zeros((0, *result.values.shape), np.float32)
    ends = empty if found is None else found[:, 0].astype(np.float32)
    return QuantileField(corrected, tuple(float(tau) for tau in quantiles), ends)


def calibrated_to_file(
    trained: TrainedModel,
    calibration: Calibration | None,
    field: Field,
    path: str | Path,
    at: Points | None = None,
    times: Times | None = None,
    memory: int | str | None = None,
    feedback: bool = True,
) -> tuple[int, int]:
    """As `forecast_to_file`, corrected by recent errors; returns numbers of times and points.

    Args:
        trained: the model.
        calibration: of the model; None: forecasts are not corrected.
        field: observations up to the issue time.
        path: of the file to write.
        at: points of the forecast; None: those of the field.
        times: of the forecast; None: the trained leads.
        memory: limit of the process, such as "2G".
        feedback: whether recent errors correct the forecast.
    """
    correct = correction_of(trained, calibration, field, feedback)
    return forecast_to_file(trained, field, path, at, times, memory, correct=correct)


def correction_of(
    trained: TrainedModel, calibration: Calibration | None, field: Field, feedback: bool
) -> Correction | None:
    """The correction of forecasts from the last frame of a field; None if there is none.

    Args:
        trained: the model.
        calibration: of the model.
        field: observations up to the issue time.
        feedback: whether recent errors correct the forecast.
    """
    if calibration is None or not feedback or not calibration.feedback.active:
        return None
    corrector = Corrector(calibration, PastForecasts(trained.model, trained, field))

    def correct(values: np.ndarray, queries: Points, times: np.ndarray) -> np.ndarray:
        request = Request(_last(field), queries, times[None])
        return corrector.apply(values.astype(np.float64), request)[0].astype(np.float32)

    return correct


def required(calibration: Calibration | None) -> Calibration:
    """The calibration.

    Args:
        calibration: of a run, which may have none.

    Raises:
        UsageError: if there is none.
    """
    if calibration is None:
        raise UsageError(
            "This run has no calibration, so that no intervals can be given: it was made by an "
            "older stonet, or its validation part is too short. Fit again."
        )
    return calibration


def recent_frames(trained: TrainedModel, field: Field, calibration: Calibration | None) -> Field:
    """The last frames of a field that a forecast and its calibration need.

    Args:
        trained: the model.
        field: observations up to the issue time.
        calibration: of the model; with it, earlier forecasts need more frames.
    """
    past = trained.time_spec.past
    count = past if calibration is None else frames_needed(trained.time_spec)
    return field.between(max(0, len(field.times) - count), len(field.times))


def _last(field: Field) -> np.ndarray:
    return np.array([len(field.times) - 1])
