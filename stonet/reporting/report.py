"""report: from a model and data to a page, in one call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from stonet.calibration.conformal import Calibration
from stonet.calibration.stored import load_calibration
from stonet.data.field import Dataset
from stonet.datasets import DATASETS, open_any
from stonet.errors import UsageError
from stonet.io.read import as_dataset
from stonet.reporting.page import check_page, write_page
from stonet.reporting.results import Origin, gather
from stonet.system.progress import ProgressCallback, ignore_progress
from stonet.training.documents import parse_document
from stonet.training.run_folder import RunFolder
from stonet.training.trained_model import TrainedModel, reading_for


@runtime_checkable
class FittedEstimator(Protocol):
    """What a report needs of an estimator, such as `stonet.STONet`."""

    @property
    def trained(self) -> TrainedModel:
        """The trained model."""

    @property
    def calibration(self) -> Calibration | None:
        """The calibration of its intervals."""

    @property
    def metrics(self) -> Mapping[str, Any]:
        """The course of the training."""


def report(
    model: FittedEstimator | TrainedModel | str | Path,
    data: Any = None,
    path: str | Path = "report.html",
    part: str = "test",
    feedback: bool = True,
    title: str | None = None,
    on_progress: ProgressCallback = ignore_progress,
) -> Path:
    """Write a report: one self-contained page on data, training, scores, forecasts and influence.

    Args:
        model: an estimator, a trained model or a run folder.
        data: a Field, a Dataset, a name or anything that `stonet.read` takes (None: the data of
            the training, where they are a file or have a name).
        path: of the page, which ends in .html; it is replaced.
        part: "test", "validation", "train" or "all" of the data.
        feedback: whether forecasts are corrected by recent errors.
        title: of the page (None: model and data).
        on_progress: called with the number of finished steps, their total and a description.

    Returns:
        the path of the page.

    Raises:
        UsageError: the path is none of a page, or the data are not known.
        DataError: the data do not fit the model.

    Example:
        >>> stonet.report("runs/stations", path="report.html")  # doctest: +SKIP
    """
    path = Path(path)
    check_page(path)
    origin = origin_of(model)
    dataset = _opened(origin.trained, data)
    results = gather(origin, dataset, part, feedback, data is None, on_progress)
    write_page(results, path, title, on_progress)
    return path


def origin_of(model: FittedEstimator | TrainedModel | str | Path) -> Origin:
    """A model with its calibration and the record of its training.

    Args:
        model: an estimator, a trained model or a run folder.
    """
    if isinstance(model, TrainedModel):
        return Origin(model)
    if not isinstance(model, (str, Path)):
        return Origin(model.trained, model.calibration, model.metrics)
    trained, place = TrainedModel.load(model), RunFolder(model)
    metrics = parse_document(place.read("metrics.json"), f"{model}/metrics.json")
    calibration = load_calibration(trained, model)
    return Origin(trained, calibration, metrics, str(model), place.files)


def _opened(trained: TrainedModel, data: Any) -> Dataset:
    """The data, read as for training."""
    if data is None:
        known = trained.dataset in DATASETS or Path(trained.dataset).exists()
        if not known and not any(sign in trained.dataset for sign in "*?["):
            raise UsageError(
                f"The data of the training ('{trained.dataset}') are neither a file nor a data set "
                "by name. Give them: stonet.report(model, data)."
            )
        return open_any(trained.dataset, trained.config.read)
    config = reading_for(trained, data).read
    return open_any(data, config) if isinstance(data, str) else as_dataset(data, config)
