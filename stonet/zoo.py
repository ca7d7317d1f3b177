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

MODELS: dict[str, Callable[[Config, Clock, int, Points], Forecaster]] = {
    "stonet": STONetwork,
    "linear": floors.linear,
    "persistence": floors.persistence,
}


def build_model(config: Config, clock: Clock, channels: int, nodes: Points) -> Forecaster:
    """The model that the configuration names, untrained."""
    if config.model not in MODELS:
        raise unknown_name("model", config.model, MODELS)
    return MODELS[config.model](config, clock, channels, nodes)
