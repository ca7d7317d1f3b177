"""MODELS: every forecaster by name, built in or registered by a user or a plug-in.

A model of one's own joins `fit`, `predict`, `compare` and the contract checks by one call,

    >>> from stonet.models.registry import register_model
    >>> register_model("nearest", Nearest)

or, for every command and process, by an entry point of an installed package:

    [project.entry-points."stonet.models"]
    nearest = "my_package.nearest:Nearest"
"""

from __future__ import annotations

import warnings
from importlib.metadata import EntryPoint, entry_points

from stonet.config import Config
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.errors import UsageError, unknown_name
from stonet.models.baselines import persistence
from stonet.models.baselines.agcrn import AGCRN
from stonet.models.baselines.astgcn import ASTGCN
from stonet.models.baselines.clcrn import CLCRN
from stonet.models.baselines.climatology import Climatology
from stonet.models.baselines.dcrnn import DCRNN
from stonet.models.baselines.dlinear import DLinear
from stonet.models.baselines.gcgru import GCGRU
from stonet.models.baselines.lightgbm import LightGBM
from stonet.models.baselines.mign import MIGN
from stonet.models.baselines.mstgcn import MSTGCN
from stonet.models.baselines.nhits import NHITS
from stonet.models.baselines.patchtst import PatchTST
from stonet.models.baselines.stgcn import STGCN
from stonet.models.baselines.tgcn import TGCN
from stonet.models.forecaster import Builder, Forecaster
from stonet.models.operator import OperatorNetwork
from stonet.models.paper import PaperNetwork
from stonet.models.stonet import STONetwork

MODELS: dict[str, Builder] = {
    "stonet": STONetwork,
    "stonet-operator": OperatorNetwork,
    "stonet-paper": PaperNetwork,
    "climatology": Climatology,
    "daily": persistence.Daily,
    "linear": persistence.linear,
    "persistence": persistence.persistence,
    "agcrn": AGCRN,
    "astgcn": ASTGCN,
    "clcrn": CLCRN,
    "dcrnn": DCRNN,
    "dlinear": DLinear,
    "gcgru": GCGRU,
    "lightgbm": LightGBM,
    "mign": MIGN,
    "mstgcn": MSTGCN,
    "nhits": NHITS,
    "patchtst": PatchTST,
    "stgcn": STGCN,
    "tgcn": TGCN,
}
REFERENCE_FORECASTS = ("persistence", "daily", "climatology", "linear")  # to be beaten by models
OURS = ("stonet", "stonet-operator", "stonet-paper")
PAPER_BASELINES = ("tgcn", "stgcn", "mstgcn", "astgcn", "gcgru", "dcrnn", "agcrn", "clcrn")
BASELINES = tuple(name for name in MODELS if name not in (*OURS, *REFERENCE_FORECASTS))
ENTRY_POINTS = "stonet.models"  # group of the entry points that add models


def register_model(name: str, build: Builder) -> None:
    """Add a model under a new name, for this process.

    Args:
        name: as in `--model` and `model=`.
        build: makes an untrained model from the configuration, the TimeSpec, the number of
            channels and the training points; usually the class itself.

    Raises:
        UsageError: if another model has this name.

    Example:
        >>> register_model("nearest", Nearest)
        >>> stonet.STONet(settings=["model=nearest"]).fit(data)
    """
    if MODELS.get(name, build) is not build:
        raise UsageError(f"A model named '{name}' exists already: choose another name.")
    MODELS[name] = build


def build_model(config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> Forecaster:
    """The untrained model that the configuration names.

    Args:
        config: names the model and its settings.
        time_spec: step, past and horizon of the data.
        channels: number of channels.
        nodes: the training points.

    Raises:
        UsageError: if there is no model of this name, or its plug-in cannot be loaded.
    """
    if config.model not in MODELS:
        raise unknown_name("model", config.model, MODELS)
    return MODELS[config.model](config, time_spec, channels, nodes)


def discover_plug_ins() -> None:
    """Register the entry points of installed packages; each is loaded when it is first built.

    An entry point whose name is taken is left out, with a warning.
    """
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            register_model(entry.name, _builder(entry))
        except UsageError as error:
            warnings.warn(f"{_origin(entry)} was left out. {error}", stacklevel=2)


def _builder(entry: EntryPoint) -> Builder:
    """A builder that loads the entry point when it is called."""

    def build(config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> Forecaster:
        try:
            loaded: Builder = entry.load()
        except Exception as error:  # whatever a foreign module raises
            reason = f"{type(error).__name__}: {error}"
            raise UsageError(f"{_origin(entry)} cannot be loaded: {reason}.") from error
        return loaded(config, time_spec, channels, nodes)

    return build


def _origin(entry: EntryPoint) -> str:
    """A plug-in for messages: name, target and package."""
    package = "an unknown package" if entry.dist is None else f"the package '{entry.dist.name}'"
    return f"The model '{entry.name}' ({entry.value}) of {package}"


discover_plug_ins()
