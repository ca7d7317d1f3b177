"""MODELS: every forecaster by its name."""

from __future__ import annotations

from collections.abc import Callable

from stonet.clock import Clock
from stonet.config import Config
from stonet.errors import unknown_name
from stonet.forecaster import Forecaster
from stonet.geometry import Points
from stonet.model import STONetwork
from stonet.rivals import floors
from stonet.rivals.agcrn import AGCRN
from stonet.rivals.astgcn import ASTGCN
from stonet.rivals.clcrn import CLCRN
from stonet.rivals.climatology import Climatology
from stonet.rivals.dcrnn import DCRNN
from stonet.rivals.gcgru import GCGRU
from stonet.rivals.mstgcn import MSTGCN
from stonet.rivals.stgcn import STGCN
from stonet.rivals.tgcn import TGCN

MODELS: dict[str, Callable[[Config, Clock, int, Points], Forecaster]] = {
    "stonet": STONetwork,
    "climatology": Climatology,
    "daily": floors.Daily,
    "linear": floors.linear,
    "persistence": floors.persistence,
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
