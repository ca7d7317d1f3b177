"""Calibrations in run folders: made after a training, loaded with the model."""

from __future__ import annotations

from pathlib import Path

from stonet.calibration.conformal import Calibration
from stonet.calibration.document import FILE, from_bytes, to_bytes
from stonet.calibration.fit import calibrate
from stonet.system import distributed
from stonet.training.run_folder import RunFolder
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel


def calibrate_run(
    trained: TrainedModel, task: Task, folder: str | Path | None = None
) -> Calibration | None:
    """Calibrate a trained model and publish the calibration in its run folder.

    Args:
        trained: the model.
        task: what it was trained for.
        folder: its run folder (None: the calibration stays in memory).

    Returns:
        the calibration; None where no error is known, and in all processes but the first.
    """
    if not distributed.is_first():
        return None
    calibration = calibrate(trained, task)
    if calibration is not None and folder is not None:
        RunFolder(folder).publish({FILE: to_bytes(calibration, trained.channels)})
    return calibration


def load_calibration(trained: TrainedModel, folder: str | Path) -> Calibration | None:
    """The calibration of a run folder; None if it has none, as before intervals were introduced.

    Args:
        trained: the model of the same folder.
        folder: the run folder.

    Raises:
        ModelFileError: if it is not valid.
    """
    place = RunFolder(folder)
    if FILE not in place.files:
        return None
    leads, source = trained.time_spec.horizon, f"{folder}/{FILE}"
    return from_bytes(place.read(FILE), trained.channels, leads, source)
