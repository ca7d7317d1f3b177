"""Forecasts of physical fields at scattered points, anywhere and at any time.

The way from file to forecast, one package for each step:

    io, datasets          files, names         -> Field, Dataset   (data/field.py)
    data, training/task   Dataset              -> past and future windows
    models                windows              -> forecast         (operators, linear, graph)
    training              Task                 -> TrainedModel
    inference             TrainedModel, Field  -> Field
    evaluation            TrainedModel, Task   -> scores           (plotting)
    quality               files                -> quality report

Axes are (batch, time, node, channel) everywhere. Their names in annotations: batch, past, future,
frame, node, query, edge, level, channel, latent, rank.

Example:
    >>> import stonet
    >>> field = stonet.read("stations.csv")
    >>> model = stonet.STONet(horizon="12h").fit(field)
    >>> model.predict(field, at=[(46.95, 7.44)], times="+90min")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stonet._version import __version__

if TYPE_CHECKING:
    from stonet.config import Config, load_config
    from stonet.data.field import Dataset, Field
    from stonet.data.geometry import Points
    from stonet.datasets import open_dataset
    from stonet.errors import StonetError
    from stonet.estimator import STONet, evaluate
    from stonet.inference.hindcast import hindcast
    from stonet.inference.stream import Stream
    from stonet.io.read import read
    from stonet.quality.report import check
    from stonet.reporting.report import report
    from stonet.training.trained_model import TrainedModel

_MODULES = {  # of the public names, which are imported on first use: `import stonet` is quick
    "Config": "stonet.config",
    "Dataset": "stonet.data.field",
    "Field": "stonet.data.field",
    "Points": "stonet.data.geometry",
    "STONet": "stonet.estimator",
    "StonetError": "stonet.errors",
    "Stream": "stonet.inference.stream",
    "TrainedModel": "stonet.training.trained_model",
    "check": "stonet.quality.report",
    "evaluate": "stonet.estimator",
    "hindcast": "stonet.inference.hindcast",
    "load_config": "stonet.config",
    "open_dataset": "stonet.datasets",
    "read": "stonet.io.read",
    "report": "stonet.reporting.report",
}
__all__ = [
    "Config",
    "Dataset",
    "Field",
    "Points",
    "STONet",
    "StonetError",
    "Stream",
    "TrainedModel",
    "__version__",
    "check",
    "evaluate",
    "hindcast",
    "load_config",
    "open_dataset",
    "read",
    "report",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'stonet' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
