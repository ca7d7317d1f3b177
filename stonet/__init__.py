"""From scattered sensors to a forecast anywhere, at any time.

The way from file to forecast:

    sources, datasets   files and names    -> Field, Dataset      (field.py: the one currency)
    task, windows       Dataset            -> past/future windows (clock.py, scaling.py)
    model               windows            -> forecast            (encoder, decoder, linear.py)
    training, run       Task               -> TrainedModel                 (state.py, checkpoint.py)
    inference           TrainedModel, Field         -> Field
    evaluation          TrainedModel, Task          -> tidy records        (metrics.py, plots.py)

Axes, everywhere: (batch, time, node, channel). Their names in annotations: batch, past, future,
frame, node, query, edge, level, channel, latent, rank.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stonet._version import __version__

if TYPE_CHECKING:
    from stonet.data.field import Dataset, Field
    from stonet.data.geometry import Points
    from stonet.datasets import open_dataset
    from stonet.errors import StonetError
    from stonet.estimator import STONet
    from stonet.inference.stream import Stream
    from stonet.io.read import read

_WHERE = {  # public names, in reading order; imported when first used, so that importing is quick
    "read": "stonet.io.read",
    "open_dataset": "stonet.datasets",
    "Field": "stonet.data.field",
    "Points": "stonet.data.geometry",
    "Dataset": "stonet.data.field",
    "STONet": "stonet.estimator",
    "Stream": "stonet.inference.stream",
    "StonetError": "stonet.errors",
}
__all__ = [
    "Dataset",
    "Field",
    "Points",
    "STONet",
    "StonetError",
    "Stream",
    "__version__",
    "open_dataset",
    "read",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'stonet' has no attribute '{name}'")
