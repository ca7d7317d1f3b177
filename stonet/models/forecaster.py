"""Forecaster: what every model promises, from the paper's network to plain persistence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from stonet.data.batch import Batch
from stonet.data.geometry import Points
from stonet.data.windows import Windows
from stonet.errors import UsageError


@dataclass(frozen=True)
class Graphs:
    """Nodes, where values are observed, and queries, where they are asked; made by a Forecaster.

    `graph` and `links` are whatever that model needs to know of the nodes and of the queries.
    """

    graph: Any
    links: Any


@dataclass(frozen=True)
class Tile:
    """A part of the nodes and a graphs that asks the first of them, the core, with all they need."""

    nodes: Int64[np.ndarray, " node"] | None  # positions, the core's first; None: all nodes
    core: int  # how many are asked
    graphs: Graphs


@dataclass(frozen=True)
class Output:
    """A model's answer in normalised units."""

    forecast: Float[Tensor, "batch future query channel"]
    reconstruction: Float[Tensor, "frame node channel"] | None = None  # of the inputs
    inputs: Batch | None = None  # what is reconstructed, where that is not the whole batch


@dataclass(frozen=True)
class Supervision:
    """The answers, shown in training to models that are led through their own forecast."""

    target: Float[Tensor, "batch future node channel"]
    mask: Bool[Tensor, "batch future node channel"]
    progress: float  # share of the training that is done
    teacher_forcing_draws: Float[
        Tensor, " future"
    ]  # uniform in 0..1, one for each lead; drawn from (seed, step)


class Forecaster(nn.Module, ABC):
    """Past frames on some points in, values at any query points and times out.

    It promises: windows of a batch do not influence each other; nothing after the issue time is
    used; a missing value has no influence; the same arguments give the same answer.
    """

    inductive: bool = True  # whether it can be asked at points it was not trained on
    lr: float = 1e-2  # a learning rate that suits it
    hidden_sensors: float = 0.0  # share of sensors hidden in a training step
    consecutive: int = (
        1  # consecutive windows in a batch; more only pay where windows share their frames
    )
    tiled: bool = (
        False  # whether a forecast depends on few nodes, so that it has `adjacency` and `tile`
    )
    frame_wise: bool = False  # whether `encode` gives a row for each frame, from it alone

    @abstractmethod
    def graph(self, nodes: Points) -> Any:
        """What the model needs to know of the nodes, where values are observed."""

    @abstractmethod
    def links(self, nodes: Points, queries: Points) -> Any:
        """What the model needs to know of the queries, where values are asked."""

    def graphs(self, nodes: Points, queries: Points | None = None) -> Graphs:
        """Prepare for values at `nodes` and questions at `queries` (None: at the nodes)."""
        return Graphs(self.graph(nodes), self.links(nodes, nodes if queries is None else queries))

    @abstractmethod
    def encode(self, batch: Batch, graphs: Graphs) -> Any:
        """What the past says; it does not depend on the queries."""

    @abstractmethod
    def decode(
        self, encoded: Any, batch: Batch, graphs: Graphs
    ) -> Float[Tensor, "batch future query channel"]:
        """The forecast at the graphs's queries and the batch's lead times."""

    def reconstruct(self, encoded: Any) -> Float[Tensor, "frame node channel"] | None:
        """The inputs as the encoding tells them; None for models that have no such thing."""
        return None

    def forward(
        self, batch: Batch, graphs: Graphs, supervision: Supervision | None = None
    ) -> Output:
        """The answer; a supervision is only there in training, and most models need none."""
        encoded = self.encode(batch, graphs)
        return Output(self.decode(encoded, batch, graphs), self.reconstruct(encoded))

    def adjacency(self, nodes: Points) -> Any:
        """Who depends on whom among the nodes, for `tile`; few models depend on few nodes only."""
        raise self._not_tiled()

    def tile(self, adjacency: Any, core: Int64[np.ndarray, " core"]) -> Tile:
        """The core with its halo: its forecast is the one that all nodes together would give."""
        raise self._not_tiled()

    def _not_tiled(self) -> UsageError:
        return UsageError(
            f"{type(self).__name__} as it is set sees all points at once and cannot be trained in "
            "tiles. Leave train.tile out, or give fewer points (--points)."
        )

    def isolated(self, graphs: Graphs) -> int:
        """Points of the graphs out of every radius, served by their nearest neighbour instead."""
        return 0

    def fit_closed_form(self, train: Windows, validation: Windows, nodes: Points) -> None:
        """Solve what needs no gradient, before training starts; most models have no such thing."""
        return None


def masked_mae(
    forecast: Float[Tensor, "*shape"],
    truth: Float[Tensor, "*shape"],
    mask: Bool[Tensor, "*shape"],
    weight: Float[Tensor, "..."] | float = 1.0,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The weighted sum of |error| over observed values, and the sum of weights."""
    counted = mask * weight
    error = torch.where(mask, forecast - truth, 0.0).abs()
    return (error * counted).sum(), counted.sum()
