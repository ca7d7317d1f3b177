"""MODELS: every forecaster by its name."""

from __future__ import annotations

from collections.abc import Callable

from stonet.config import Config
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.errors import unknown_name
from stonet.models.baselines import persistence
from stonet.models.baselines.agcrn import AGCRN
from stonet.models.baselines.astgcn import ASTGCN
from stonet.models.baselines.clcrn import CLCRN
from stonet.models.baselines.climatology import Climatology
from stonet.models.baselines.dcrnn import DCRNN
from stonet.models.baselines.gcgru import GCGRU
from stonet.models.baselines.mstgcn import MSTGCN
from stonet.models.baselines.stgcn import STGCN
from stonet.models.baselines.tgcn import TGCN
from stonet.models.forecaster import Forecaster
from stonet.models.stonet import STONetwork

MODELS: dict[str, Callable[[Config, TimeSpec, int, Points], Forecaster]] = {
    "stonet": STONetwork,
    "climatology": Climatology,
    "daily": persistence.Daily,
    "linear": persistence.linear,
    "persistence": persistence.persistence,
    "agcrn": AGCRN,
    "astgcn": ASTGCN,
    "clcrn": CLCRN,
    "dcrnn": DCRNN,
    "gcgru": GCGRU,
    "mstgcn": MSTGCN,
    "stgcn": STGCN,
    "tgcn": TGCN,
}
REFERENCE_FORECASTS = (
    "persistence",
    "daily",
    "climatology",
    "linear",
)  # which every model must beat
BASELINES = tuple(name for name in MODELS if name != "stonet" and name not in REFERENCE_FORECASTS)


def build_model(config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> Forecaster:
    """The model that the configuration names, untrained."""
    if config.model not in MODELS:
        raise unknown_name("model", config.model, MODELS)
    return MODELS[config.model](config, time_spec, channels, nodes)
