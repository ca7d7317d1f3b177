"""The floors: persistence and the closed-form linear operator, as forecasters of their own."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from stonet.clock import Clock
from stonet.config import Config
from stonet.forecaster import Forecaster, Scene
from stonet.geometry import Points
from stonet.linear import LinearBase
from stonet.stencil import Stencil, make_stencil, mean_spacing
from stonet.windows import Batch, Windows


class LinearForecaster(Forecaster):
    """A LinearBase alone, with nothing on top."""

    def __init__(self, base: LinearBase) -> None:
        super().__init__()
        self.base = base

    def graph(self, nodes: Points) -> None:
        return None

    def links(self, nodes: Points, queries: Points) -> Stencil:
        stencil = make_stencil(queries, nodes, float(self.base.spacing))
        return stencil.to(self.base.spacing.device, self.base.spacing.dtype)

    def encode(self, batch: Batch, scene: Scene) -> None:
        return None

    @torch.no_grad()
    def decode(
        self, encoded: None, batch: Batch, scene: Scene
    ) -> Float[Tensor, "batch future query channel"]:
        return self.base(batch, scene.links)

    def fit_closed_form(self, train: Windows, validation: Windows, nodes: Points) -> None:
        self.base.fit(train, validation, nodes)


def persistence(config: Config, clock: Clock, channels: int, nodes: Points) -> Forecaster:
    """The last observed value; at a point without a past, the mean of its neighbours' last ones."""
    base = LinearBase(clock, channels, "persistence")
    base.spacing.fill_(mean_spacing(nodes))
    return LinearForecaster(base)


def linear(config: Config, clock: Clock, channels: int, nodes: Points) -> Forecaster:
    """The ridge regression that STONet starts from."""
    return LinearForecaster(LinearBase(clock, channels, "ridge"))
