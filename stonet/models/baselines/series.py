"""The common part of the baselines that forecast every node from its own past: no graph.

They have the layout (batch, node, channel, past). The neighbours enter only where a node has no
past of its own. What is known of the leads beforehand (calendar, place, sun) is an input of the
last linear map: `CovariateMap`.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from stonet.data.geometry import Points
from stonet.models.baselines.base import GraphBaseline, Inputs
from stonet.models.forecaster import Supervision

Series = Float[Tensor, "batch node channel past"]


class SeriesBaseline(GraphBaseline[None]):
    """A baseline without a graph; subclasses define `forecast_series`."""

    default_past = None  # the complete one: their costs hardly depend on it

    def operators(self, nodes: Points) -> None:
        """No graph."""
        return None

    @abstractmethod
    def forecast_series(
        self, series: Series, ahead: Float[Tensor, "batch node known"]
    ) -> Float[Tensor, "batch node channel future"]:
        """The forecast at all leads.

        Args:
            series: the past of each node, oldest step first.
            ahead: what is known of all leads beforehand, for each node.
        """

    def forecast_nodes(
        self, inputs: Inputs, operators: None, supervision: Supervision | None
    ) -> Float[Tensor, "batch future node channel"]:
        """All leads of all nodes, each from its own past."""
        series = inputs.past[..., : self.channels].permute(0, 2, 3, 1)
        ahead = inputs.ahead().transpose(1, 2).flatten(2)
        return self.forecast_series(series, ahead).permute(0, 3, 1, 2)

    @property
    def known_width(self) -> int:
        """Width of `ahead`."""
        return self.ahead_width * self.time_spec.horizon


class CovariateMap(nn.Module):
    """A linear map from what is known of all leads to the forecast of every channel.

    It starts at zero. Without any such feature there is none.

    Args:
        known: width of its input.
        channels: of the forecast.
        horizon: leads.
    """

    def __init__(self, known: int, channels: int, horizon: int) -> None:
        super().__init__()
        self.channels = channels
        self.linear = nn.Linear(known, channels * horizon, bias=False) if known else None
        if self.linear is not None:
            nn.init.zeros_(self.linear.weight)

    def forward(
        self, ahead: Float[Tensor, "batch node known"]
    ) -> Float[Tensor, "batch node channel future"] | float:
        """Its part of the forecast.

        Args:
            ahead: known inputs at the leads.
        """
        if self.linear is None:
            return 0.0
        return self.linear(ahead).unflatten(-1, (self.channels, -1))


def by_channel(
    x: Float[Tensor, "... channel input"], weight: Float[Tensor, "channel output input"]
) -> Float[Tensor, "... channel output"]:
    """A linear map with separate weights for each channel.

    Args:
        x: inputs of each channel.
        weight: one matrix for each channel.
    """
    return torch.einsum("...ci,coi->...co", x, weight)
