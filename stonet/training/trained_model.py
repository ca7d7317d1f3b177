"""TrainedModel: a model with everything a forecast needs, in memory or in a run folder."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import torch

from stonet._version import __version__
from stonet.config import Config, Section
from stonet.data import display
from stonet.data.durations import duration_label
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.data.physical_limits import same_unit
from stonet.data.scaling import Scaler
from stonet.data.time_spec import TimeSpec
from stonet.errors import DataError, ModelFileError, ResourceError
from stonet.models.forecaster import Forecaster
from stonet.models.registry import build_model
from stonet.training import documents
from stonet.training.allocation import allocation_limited
from stonet.training.choice import Choices, untrained_combination
from stonet.training.model_card import model_card
from stonet.training.run_folder import RunFolder, pack, unpack
from stonet.training.task import Task

FORMAT = 3
S = TypeVar("S", bound=Section)


@dataclass(frozen=True)
class TrainedModel:
    """A model, its configuration, and what was derived from the training data.

    Args:
        model: untrained or trained.
        config: resolved.
        time_spec: step, past and horizon.
        scaler: normalisation and physical range.
        nodes: the training points.
        channels: names.
        units: one for each channel.
        dataset: name or file of the training data.
        choices: where reference forecasts are part of the model.

    Example:
        >>> trained = TrainedModel.load("runs/uk")
        >>> trained.channels, trained.time_spec.horizon
    """

    model: Forecaster
    config: Config
    time_spec: TimeSpec
    scaler: Scaler
    nodes: Points
    channels: tuple[str, ...]
    units: tuple[str, ...]
    dataset: str
    choices: Choices = ()

    @staticmethod
    def untrained(task: Task) -> TrainedModel:
        """A new model for the task, initialised from train.seed.

        Args:
            task: gives data and settings.
        """
        first = task.dataset.episodes[0]
        with torch.random.fork_rng(devices=[]):  # the caller's generator is not changed
            torch.manual_seed(task.config.train.seed)
            model = build_model(task.config, task.time_spec, len(first.channels), task.nodes)
        name, nodes = task.dataset.name, task.nodes
        config = _with_model_defaults(task.config, model)
        return TrainedModel(
            model, config, task.time_spec, task.scaler, nodes, first.channels, first.units, name
        )

    def __repr__(self) -> str:
        return display.as_text(self._title(), self._summary())

    def _repr_html_(self) -> str:
        return display.as_html(self._title(), self._summary())

    def _title(self) -> str:
        size = sum(parameter.numel() for parameter in self.model.parameters())
        return f"TrainedModel: {self.config.model}, {display.counted(size, 'parameter')}"

    def _summary(self) -> dict[str, str]:
        times, points = self.time_spec, display.counted(len(self.nodes), "point")
        step = duration_label(times.step)
        return {
            "trained on": display.shortened(self.dataset),
            "channels": display.channels_with_units(self.channels, self.units),
            "times": f"{times.past} steps in, {times.horizon} out, {step} each",
            "extent": f"{points} on a {display.extent(self.nodes)}",
            **({"reference forecasts": "; ".join(map(str, self.choices))} if self.choices else {}),
        }

    def files(self, metrics: Mapping[str, Any]) -> dict[str, bytes]:
        """The content of a run folder, for `RunFolder.publish`: safetensors, JSON and a model card.

        Args:
            metrics: how training went, for metrics.json and the model card.
        """
        points = {
            "kind": self.nodes.kind,
            "names": list(self.nodes.names),
            "coordinates": self.nodes.coordinates.tolist(),
        }
        config = {
            "format": FORMAT,
            "version": __version__,
            "dataset": self.dataset,
            "channels": list(self.channels),
            "units": list(self.units),
            "time_spec": asdict(self.time_spec),
            "config": self.config.model_dump(),
            "choices": [asdict(choice) for choice in self.choices],
        }
        documents = {
            "config": config,
            "points": points,
            "scaler": asdict(self.scaler),
            "metrics": dict(metrics),
        }
        encoded = {f"{name}.json": _json(content) for name, content in documents.items()}
        weights = pack(self.model.state_dict(), {"model": self.config.model})
        card = model_card(self, metrics).encode()
        return encoded | {"model.safetensors": weights, "README.md": card}

    @staticmethod
    def load(path: str | Path) -> TrainedModel:
        """Read a run folder.

        Args:
            path: of the run folder.

        Raises:
            UsageError: if there is no run.
            ModelFileError: if files are damaged, inconsistent or of another format.
        """
        folder = RunFolder(path)
        document = _read(folder, "config.json")
        _check_format(document.get("format"), path)
        points, scaling = _read(folder, "points.json"), _read(folder, "scaler.json")
        try:
            channels, units = documents.channels_of(document)
            config, nodes = documents.config_of(document["config"]), documents.points_of(points)
            time_spec = documents.time_spec_of(document["time_spec"])
            scaler = documents.scaler_of(scaling, len(channels))
            choices = documents.choices_of(document.get("choices"), channels, time_spec.horizon)
            weights, _ = unpack(folder.read("model.safetensors"), f"{path}/model.safetensors")
            with allocation_limited(weights):
                model = build_model(config, time_spec, len(channels), nodes)
                if choices:
                    model = untrained_combination(
                        model, choices, config, time_spec, channels, nodes
                    )
            model.load_state_dict(weights)
            dataset = str(document["dataset"])
            return TrainedModel(
                model.eval(), config, time_spec, scaler, nodes, channels, units, dataset, choices
            )
        except (ModelFileError, ResourceError):
            raise
        except (
            LookupError,
            TypeError,
            AttributeError,
            RuntimeError,
            ValueError,
            ArithmeticError,
            AssertionError,
        ) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise ModelFileError(
                f"{path}: its files do not fit together ({reason}). Use an intact copy or fit "
                "again."
            ) from error

    def with_bounds(self, bounds: Mapping[str, str]) -> TrainedModel:
        """The same model with a declared range of forecasts.

        Args:
            bounds: "LOW:HIGH" by channel; an empty end stays as before.

        Raises:
            UsageError: there is no such channel, or nothing is left of a range.
        """
        return replace(self, scaler=self.scaler.declare(self.channels, bounds))

    def check_compatible(self, field: Field) -> None:
        """Refuse data that this model cannot forecast, naming the difference.

        Args:
            field: to be forecast.

        Raises:
            DataError: if channels, units, geometry or kind of times differ from training.
        """
        if field.channels != self.channels:
            raise DataError(
                f"The data hold {field.channels}; this model forecasts {self.channels}. "
                "Select or rename the variables so that they agree, in this order."
            )
        if not all(map(same_unit, field.units, self.units)):
            raise DataError(
                f"The data are in {field.units}; this model was trained in {self.units}. "
                "Convert them."
            )
        if field.points.kind != self.nodes.kind:
            raise DataError(
                f"The data lie on a {field.points.kind}; this model was trained on a "
                f"{self.nodes.kind}. Give coordinates of the same kind."
            )
        if field.calendar != self.time_spec.calendar:
            kinds = {True: "dates", False: "seconds from zero"}
            raise DataError(
                f"The data's times are {kinds[field.calendar]}; this model was trained on "
                f"{kinds[self.time_spec.calendar]}."
            )


def _check_format(number: object, path: str | Path) -> None:
    """Refuse another format of run folders."""
    if number == FORMAT:
        return
    older = isinstance(number, int) and number < FORMAT
    remedy = (
        "It was made by an older stonet, before settings were renamed. Fit again."
        if older
        else "Upgrade stonet, or fit again."
    )
    raise ModelFileError(
        f"{path} has format {number}; this stonet ({__version__}) reads format {FORMAT}. {remedy}"
    )


def _with_model_defaults(config: Config, model: Forecaster) -> Config:
    """The configuration with the model's own values for settings that are None."""

    def filled(section: S, names: Sequence[str]) -> S:
        missing = [name for name in names if getattr(section, name) is None]
        return section.model_copy(update={name: getattr(model, name) for name in missing})

    names = ("lr", "decay", "consecutive", "alpha", "batch", "schedule", "fallback")
    train = filled(config.train, names)
    augmentation = filled(config.augmentation, ("hidden_sensors",))
    return config.model_copy(update={"train": train, "augmentation": augmentation})


def reading_for(trained: TrainedModel, data: object = None) -> Config:
    """How files are read for a trained model: as for training, of any time, its channels only.

    To be scored, the data it was trained on (`data`, a path) are read as they were then.

    Args:
        trained: the model.
        data: a path, or an object in memory.
    """
    if isinstance(data, (str, Path)) and str(data) == trained.dataset:
        return trained.config
    changed = {"start": None, "stop": None, "variables": trained.channels}
    known = {"stations": trained.config.read.stations}
    if known["stations"] is not None and not Path(known["stations"]).exists():
        known["stations"] = None  # the run knows the places
    read = trained.config.read.model_copy(update=changed | known)
    read._known_places = trained.nodes
    return trained.config.model_copy(update={"read": read})


def versions() -> dict[str, str]:
    """Versions of stonet, Python and the numerical packages."""
    names = ("torch", "numpy", "scipy", "xarray")
    ours = {"stonet": __version__, "python": platform.python_version()}
    return ours | {name: version(name) for name in names}


def _json(content: Any) -> bytes:
    """Indented JSON; NaN is refused."""
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()


def _read(folder: RunFolder, name: str) -> dict[str, Any]:
    """A JSON object of the run folder."""
    return documents.parse_document(folder.read(name), f"{folder.path}/{name}")
