"""STONet, the estimator: fit, predict, score, save and load, with scikit-learn's conventions."""

from __future__ import annotations

import inspect
import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from stonet.calibration.conformal import Calibration
from stonet.calibration.document import FILE as CALIBRATION_FILE
from stonet.calibration.document import to_bytes
from stonet.calibration.stored import calibrate_run, load_calibration
from stonet.config import Config, Settings, load_config, make_config
from stonet.data import display
from stonet.data.dates import Times
from stonet.data.field import Dataset, Field
from stonet.data.quantile_field import QuantileField
from stonet.errors import ModelFileError, UsageError, unknown_name
from stonet.evaluation.calibrated import calibrate_models
from stonet.evaluation.metrics import Record, find
from stonet.evaluation.scoring import evaluate as score_models
from stonet.evaluation.scoring import reference_forecasts
from stonet.evaluation.tables import records_table, score_table
from stonet.evaluation.task import ALL, scored_task
from stonet.inference.calibrated import calibrated_forecast, quantile_forecast
from stonet.inference.hub import run_folder
from stonet.inference.places import find_places
from stonet.io.read import as_dataset
from stonet.models.baselines.persistence import persistence
from stonet.models.forecaster import Forecaster
from stonet.reporting.plot_methods import PlotMethods
from stonet.system import distributed
from stonet.training.budget import Budget
from stonet.training.documents import parse_document
from stonet.training.fit import check_empty, fit_run, summary
from stonet.training.progress_bar import DELAY, is_interactive, training_bar
from stonet.training.refit import refit_run
from stonet.training.run_folder import RunFolder
from stonet.training.state import State
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel, reading_for
from stonet.training.trainer import Progress, StepCallback

if TYPE_CHECKING:
    import pandas as pd

LOGGER = logging.getLogger(__name__)
PARAMETERS_FILE = "estimator.json"  # in a run folder: the parameters of the estimator


class STONet(PlotMethods, display.Described):
    """A forecaster of fields at scattered points.

    Parameters are stored as they are given and validated by `fit`.

    Example:
        >>> model = STONet(horizon="12h").fit(observations)
        >>> forecast = model.predict(observations, at=sites, times=["+90min", "+6h"])

    Args:
        horizon: length of the forecast: steps of the data, or a duration such as "12h".
        past: length of the inputs (None: 12 steps, or a day if the data have a daily cycle).
        preset: "default", "paper" or "tiny".
        seed: of all random draws (None: that of the settings, or 0).
        settings: "section.key=value" strings, a dictionary with nested or dotted keys, or a
            Config.
    """

    _trained: TrainedModel | None = None
    _calibration: Calibration | None = None
    _metrics: Mapping[str, Any] = {}
    state: State | None = None  # of the training, after fit

    def __init__(
        self,
        horizon: int | str | None = None,
        past: int | str | None = None,
        preset: str = "default",
        seed: int | None = None,
        settings: Settings = (),
    ) -> None:
        self.horizon = horizon
        self.past = past
        self.preset = preset
        self.seed = seed
        self.settings = settings

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters as they were given; `deep` has no effect.

        Args:
            deep: as scikit-learn passes it; no parameter is an estimator.
        """
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> STONet:
        """Change parameters; they take effect with the next `fit`.

        Args:
            **params: new values by name.

        Raises:
            UsageError: there is no such parameter.
        """
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise unknown_name("parameter", name, known)
            setattr(self, name, value)
        return self

    @property
    def config(self) -> Config:
        """The configuration that the parameters stand for.

        Raises:
            UsageError: a parameter is invalid.
        """
        config = load_config(self.preset, settings=self.settings).model_dump(exclude_unset=True)
        own: dict[str, dict[str, Any]] = {
            "data": {"horizon": self.horizon, "past": self.past},
            "train": {"seed": self.seed},
        }
        for section, values in own.items():
            given = {key: value for key, value in values.items() if value is not None}
            config[section] = config.get(section, {}) | given
        return make_config(config)

    @property
    def trained(self) -> TrainedModel:
        """The trained model.

        Raises:
            UsageError: `fit` was not called.
        """
        if self._trained is None:
            raise UsageError(
                "This STONet is not trained yet. Call fit(data), or STONet.load(folder)."
            )
        return self._trained

    @property
    def calibration(self) -> Calibration | None:
        """The calibration of the intervals; None before `fit` or without any known error."""
        return self._calibration

    @property
    def metrics(self) -> Mapping[str, Any]:
        """The course of the training, as in metrics.json; empty before `fit`."""
        return self._metrics

    def __sklearn_is_fitted__(self) -> bool:
        return self._trained is not None

    def _title(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        given = (
            f"{name}={display.shortened(repr(value), display.MAX_NAME)}"
            for name, value in self.get_params().items()
            if value is not defaults[name].default
        )
        return f"{type(self).__name__}({', '.join(given)})"

    def _summary(self) -> dict[str, str]:
        return {"state": "not fitted"} if self._trained is None else self._trained._summary()

    def fit(
        self,
        data: Any,
        folder: str | Path | None = None,
        resume: bool = False,
        watch: StepCallback | None = None,
        minutes: float | None = None,
        progress: bool | None = None,
        final: bool = False,
    ) -> STONet:
        """Train from the beginning, or continue with `resume`.

        Args:
            data: a Field, a Dataset or anything that `stonet.read` takes.
            folder: where the run is saved (None: it stays in memory).
            resume: continue from the last saved state in the folder.
            watch: called after each step and validation.
            minutes: of CPU time, instead of train.epochs (on a GPU: of wall time).
            progress: show a progress bar (None: in a terminal or notebook, after 2 seconds).
            final: refit on training and validation part once all settings are chosen
                (`stonet.training.refit`), as the setting train.final.

        Raises:
            DataError: the data do not fit the settings.
            UsageError: a parameter is invalid, or the folder holds a run.
        """
        config = self.config
        if minutes is not None:
            config = Budget(minutes=minutes).limit(config)
        if final:
            train = config.train.model_copy(update={"final": True})
            config = config.model_copy(update={"train": train})
        show = is_interactive() if progress is None else progress
        quiet, delay = not (show and distributed.is_first()), DELAY if progress is None else 0.0
        with training_bar(quiet, delay) as update_bar:

            def on_event(event: Progress) -> None:
                update_bar(event)
                if watch is not None:
                    watch(event)

            task = Task.of(as_dataset(data, config.read), config)
            self._trained, self.state = fit_run(task, folder, resume, on_event)
        for choice in self._trained.choices:
            LOGGER.warning("Validation favours a reference forecast. %s.", choice)
        self._calibration = calibrate_run(self._trained, task, folder)
        self._metrics = summary(self.state, task)
        if config.train.final:
            with training_bar(quiet, delay, title="refit") as update_bar:
                self._trained, self._metrics = refit_run(
                    self._trained, task, self.state, folder, on_event
                )
        if folder is not None and distributed.is_first():
            RunFolder(folder).publish({PARAMETERS_FILE: self._parameters()})
        return self

    @overload
    def predict(
        self,
        data: Any,
        at: Any = None,
        times: Times | None = None,
        snap: bool = True,
        quantiles: None = None,
        feedback: bool = True,
    ) -> Field: ...

    @overload
    def predict(
        self,
        data: Any,
        at: Any = None,
        times: Times | None = None,
        snap: bool = True,
        *,
        quantiles: Sequence[float],
        feedback: bool = True,
    ) -> QuantileField: ...

    def predict(
        self,
        data: Any,
        at: Any = None,
        times: Times | None = None,
        snap: bool = True,
        quantiles: Sequence[float] | None = None,
        feedback: bool = True,
    ) -> Field | QuantileField:
        """Forecast the time after the last observation; see `stonet.inference.forecast`.

        Args:
            data: observations, as for `fit`. The more of them, the better recent errors are known.
            at: Points, a table with columns lat and lon (or x and y), a CSV file of sites, pairs
                (lat, lon) or (x, y), names and pairs in a dictionary, names of stations, or a list
                of these (None: at the points of the data).
            times: leads ("+90min", timedelta, Timedelta, timedelta64), dates (text, datetime,
                Timestamp, datetime64), or a list of them (None: the trained leads).
            snap: use the history of a station for a place beside it (`stonet.inference.places`);
                the notes of the forecast say so.
            quantiles: of the forecast distribution, such as [0.05, 0.5, 0.95] (None: the
                forecast alone).
            feedback: correct the forecast by the model's own recent errors.

        Example:
            >>> lower, upper = model.predict(data, quantiles=[0.05, 0.95]).interval(90)
        """
        field = as_dataset(data, reading_for(self.trained).read).episodes[-1]
        places, notes = find_places(at, field.points, self.trained.nodes, snap)
        trained, calibration = self.trained, self._calibration
        if quantiles is None:
            made = calibrated_forecast(
                trained, calibration, field, places, times, feedback=feedback
            )
            return replace(made, notes=(*made.notes, *notes)) if notes else made
        found = quantile_forecast(
            trained, calibration, field, quantiles, places, times, feedback=feedback
        )
        return replace(found, field=replace(found.field, notes=(*found.field.notes, *notes)))

    def score(self, data: Any, part: str = "test") -> float:
        """The skill over persistence at seen points, 1 - MAE / MAE of persistence.

        NaN if persistence is exact.

        Args:
            data: as for `fit`.
            part: "test", "validation" or "train".
        """
        trained, channels = self.trained, self.trained.channels
        dataset = as_dataset(data, reading_for(trained, data).read)
        reference = persistence(trained.config, trained.time_spec, len(channels), trained.nodes)
        name = trained.config.model
        pair: dict[str, Forecaster] = {"persistence": reference, name: trained.model}
        seen = dataset.take(dataset.seen) if dataset.unseen else dataset
        task = scored_task(trained, seen, part)
        records = _scored(trained, self._calibration, task, part, pair)
        channel = channels[0] if len(channels) == 1 else "all"
        chosen = {"points": "seen", "channel": channel, "lead": "all", "metric": "mae"}
        mae, reference_mae = (find(records, model=m, **chosen) for m in (name, "persistence"))
        return 1.0 - mae / reference_mae if reference_mae else math.nan

    def records(self, data: Any, part: str = "test") -> pd.DataFrame:
        """All scores of the model and of its reference forecasts, one number in a row.

        Args:
            data: as for `fit`.
            part: "test", "validation", "train" or "all".

        Returns:
            Columns dataset, model, points, channel, lead, metric, value, seed.
        """
        return records_table(_records(self.trained, self._calibration, data, part))

    def save(self, folder: str | Path) -> None:
        """Save the trained model with its parameters as a run folder.

        Args:
            folder: need not exist.

        Raises:
            UsageError: the folder holds a run.
        """
        files = self.trained.files(self._metrics) | {PARAMETERS_FILE: self._parameters()}
        if self._calibration is not None:
            files[CALIBRATION_FILE] = to_bytes(self._calibration, self.trained.channels)
        place = RunFolder(folder)
        with place.lock():
            check_empty(place)
            place.publish(files)

    @classmethod
    def load(cls, folder: str | Path) -> STONet:
        """Load a run folder, made by `fit`, `save` or the command line.

        Parameters are restored. A run of the command line has none; its estimator has the
        configuration of the run as settings.

        Args:
            folder: of a run.

        Raises:
            ModelFileError: the folder is damaged or of another version.
        """
        trained, place = TrainedModel.load(folder), RunFolder(folder)
        parameters: dict[str, Any] = {"settings": trained.config}
        try:
            metrics = parse_document(place.read("metrics.json"), "metrics.json")
            if PARAMETERS_FILE in place.files:
                parameters = parse_document(place.read(PARAMETERS_FILE), PARAMETERS_FILE)
            estimator = cls(**parameters)
            _ = estimator.config  # validates
        except (TypeError, ValueError) as error:
            raise ModelFileError(
                f"{folder}: {PARAMETERS_FILE} or metrics.json is not valid ({error}). Fit again."
            ) from error
        estimator._trained, estimator._metrics = trained, metrics
        estimator._calibration = load_calibration(trained, folder)
        return estimator

    @classmethod
    def from_pretrained(cls, source: str | Path, revision: str | None = None) -> STONet:
        """Load a run from a folder or from the Hugging Face Hub.

        Only the files of a run are downloaded, and nothing that they hold is executed. Checksums
        find damage; they do not tell who made the files.

        Args:
            source: a run folder, a snapshot of the Hub, or "owner/name" on the Hub.
            revision: branch, tag or commit on the Hub (None: the newest).

        Raises:
            UsageError: it is neither, or the package huggingface_hub is not installed.
            ResourceError: the Hub cannot be reached, or has no such model.
            ModelFileError: the files are damaged or of another version.

        Example:
            >>> model = STONet.from_pretrained("runs/stations")
        """
        with run_folder(source, revision) as folder:
            return cls.load(folder)

    def _parameters(self) -> bytes:
        """The parameters as JSON."""
        parameters = self.get_params()
        given = parameters["settings"]
        if isinstance(given, Config):
            given = given.model_dump(exclude_unset=True)
        as_json = given if isinstance(given, (Mapping, str)) else list(given)
        return (json.dumps(parameters | {"settings": as_json}, indent=1) + "\n").encode()


def evaluate(
    model: STONet | TrainedModel | str | Path, data: Any, part: str = "test"
) -> pd.DataFrame:
    """Scores of a model and of its reference forecasts, over all leads.

    Args:
        model: an estimator, a trained model or a run folder.
        data: a Field, a Dataset or anything that `stonet.read` takes.
        part: "test", "validation", "train" or "all".

    Returns:
        A row for each model, group of points and channel; columns mae, rmse, mape, bias, skill,
        and scores of intervals (`stonet.evaluation.probabilistic`) if the model has any.

    Example:
        >>> stonet.evaluate(model, observations).loc["stonet", "skill"]
    """
    if isinstance(model, (str, Path)):
        model = STONet.load(model)
    if isinstance(model, STONet):
        return score_table(_records(model.trained, model._calibration, data, part))
    return score_table(_records(model, None, data, part))


def _records(
    trained: TrainedModel, calibration: Calibration | None, data: Any, part: str
) -> Sequence[Record]:
    dataset: Dataset = as_dataset(data, reading_for(trained, data).read)
    task = scored_task(trained, dataset, part)
    models = reference_forecasts(trained, task, fitted=part != ALL)
    return _scored(trained, calibration, task, part, models)


def _scored(
    trained: TrainedModel,
    calibration: Calibration | None,
    task: Task,
    part: str,
    models: Mapping[str, Forecaster],
) -> list[Record]:
    """Scores of the models; all of them learn from their recent errors, or none does.

    Of all data, none does: reference forecasts have no validation part to fit a correction to.
    """
    found = None
    if calibration is not None:
        found = calibrate_models(models, trained, task, calibration)
    return score_models(trained, task, part, models, calibrations=found, feedback=part != ALL)
