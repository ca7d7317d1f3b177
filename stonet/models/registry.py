"""MODELS: every forecaster by its name."""

from __future__ import annotations

from collections.abc import Callable

from stonet.config import Config
from stonet.data.geometry import Points
from stonet.data.time_spec import Clock
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

MODELS: dict[str, Callable[[Config, Clock, int, Points], Forecaster]] = {
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
FLOORS = ("persistence", "daily", "climatology", "linear")  # which every model must beat
RIVALS = tuple(name for name in MODELS if name != "stonet" and name not in FLOORS)


def build_model(config: Config, clock: Clock, channels: int, nodes: Points) -> Forecaster:
    """The model that the configuration names, untrained."""
    if config.model not in MODELS:
        raise unknown_name("model", config.model, MODELS)
    return MODELS[config.model](config, clock, channels, nodes)
