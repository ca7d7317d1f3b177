"""What the published baselines share: nodes on a graph, regular steps in, the trained steps out.

They know neither gaps, nor other times, nor other places. So that they can be asked the same
questions as STONet: gaps in the past are filled in time and from neighbours, times between the
steps are interpolated, and a place that is no node gets the mean of its nearest nodes' forecasts.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from stonet.config import Config
from stonet.data.batch import Batch
from stonet.data.geometry import Points
from stonet.data.resampling import between_leads, on_regular_lags
from stonet.data.time_spec import TimeSpec
from stonet.data.windows import Windows
from stonet.errors import UsageError
from stonet.graph.neighbours import nearest_nodes, own_nodes
from stonet.linear.fit import fit_linear
from stonet.linear.local_polynomials import Stencil, make_stencil
from stonet.linear.regression import LinearForecast, Regressors
from stonet.models.baselines.graph_filters import Operator, adjacency, random_walk
from stonet.models.forecaster import Forecaster, Graphs, Output, Supervision
from stonet.system.devices import in_float32, sent

LEAST, MOST, SHARE = 5, 25, 14  # neighbours: 1 in 14 points, 25 as in the papers' harness at most
PAST = 12  # steps in, as in the papers; a longer past costs a baseline more than it gives
NEAR = 4  # nodes whose forecasts are averaged where a query is no node


@dataclass(frozen=True)
class Graph:
    """A baseline's own operators, and the mean over neighbours that fills silent nodes."""

    own: Any
    mean: Operator


@dataclass(frozen=True)
class Links:
    """Which node a query is, or else its nearest nodes and their weights."""

    own: Int[Tensor, " query"]  # number of nodes where it is none
    near: Int[Tensor, "query near"]
    weight: Float[Tensor, "query near"]
    stencil: Stencil | None


@dataclass(frozen=True)
class Inputs:
    """What a baseline sees; channels first, then the calendar's features, the same at all nodes."""

    past: Float[Tensor, "batch past node feature"]  # oldest first, no gaps
    time_spec: Float[Tensor, "batch future extra"]  # the calendar at the leads 1, 2, ..., horizon
    channels: int

    @property
    def last(self) -> Float[Tensor, "batch node channel"]:
        """The values at the issue time."""
        return self.past[:, -1, :, : self.channels]


class GridForecaster(Forecaster):
    """A baseline: subclasses say what their graph is (`operators`) and how they forecast (`roll`).

    Args:
        config: its section `baseline`; `baseline.base` lets it correct a base, as STONet does.
        time_spec: the data's step, past and horizon.
        channels: of the field.
        nodes: the training points.
    """

    lr = 5e-3
    understands: frozenset[str] = frozenset()  # settings that not every baseline has a use for

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__()
        for name in sorted({"order", "embedding", "legacy"} - self.understands):
            if getattr(config.baseline, name):
                raise UsageError(f"{type(self).__name__} has no use for baseline.{name}: leave it.")
        base, past = config.baseline.base, min(config.baseline.past or PAST, time_spec.past)
        self.base = None if base == "none" else LinearForecast(time_spec, channels, base)
        self.time_spec = replace(time_spec, past=past)  # what the baseline itself looks back to
        self.baseline, self.channels, self.nodes = config.baseline, channels, nodes
        few = min(max(len(nodes) // SHARE, LEAST), MOST)  # a mean over most points would blur all
        self.near = config.baseline.neighbours or few
        self.extra = 2 * time_spec.features  # sine and cosine of the time of day and of the year

    @abstractmethod
    def operators(self, nodes: Points) -> Any:
        """What the baseline's layers need of the graph of these nodes."""

    @abstractmethod
    def roll(
        self, inputs: Inputs, operators: Any, supervision: Supervision | None
    ) -> Float[Tensor, "batch future node channel"]:
        """The forecast at the nodes and the trained leads; a supervision shows labels in training."""

    def graph(self, nodes: Points) -> Graph:
        if not self.inductive and nodes != self.nodes:
            raise UsageError(
                f"{type(self).__name__} has weights for each of its {len(self.nodes)} training "
                "points, in their order, and cannot take others."
            )
        mean = random_walk(adjacency(nodes, self.near))
        return Graph(self.operators(nodes), Operator.of(mean, *self._where))

    def links(self, nodes: Points, queries: Points) -> Links:
        distance, index = nearest_nodes(queries, nodes, NEAR)
        weight = 1.0 / np.maximum(distance, 1e-9) ** 2
        stencil = None
        if self.base is not None:
            stencil = make_stencil(queries, nodes, self.base.covariance).to(*self._where)
        return Links(
            torch.from_numpy(own_nodes(queries, nodes)).to(self._where[0]),
            torch.from_numpy(index).to(self._where[0]),
            torch.from_numpy(weight / weight.sum(1, keepdims=True)).to(*self._where),
            stencil,
        )

    def encode(self, batch: Batch, graphs: Graphs) -> Float[Tensor, "batch knot node channel"]:
        """The forecast at the nodes: leads 0 (the last value), 1, ..., horizon."""
        return self._roll(batch, graphs, None)

    @in_float32
    def decode(
        self, encoded: Float[Tensor, "batch knot node channel"], batch: Batch, graphs: Graphs
    ) -> Float[Tensor, "batch future query channel"]:
        """The same at any time and place."""
        links: Links = graphs.links
        between = between_leads(batch.lead.to(encoded.dtype), self.time_spec.horizon)
        asked = torch.einsum("btl,blnc->btnc", between.expand(len(encoded), -1, -1), encoded)
        around = (asked[:, :, links.near] * links.weight[..., None]).sum(3)
        nodes = asked.shape[2]
        mine = asked[:, :, links.own.clamp(max=nodes - 1)]
        forecast = torch.where((links.own < nodes)[:, None], mine, around)
        if self.base is None or links.stencil is None:
            return forecast
        regressors = self.base.regressors(batch, links.stencil)
        return self.base.forecast(regressors, batch) + self.base.scale(regressors, batch) * forecast

    def forward(
        self, batch: Batch, graphs: Graphs, supervision: Supervision | None = None
    ) -> Output:
        encoded = self._roll(batch, graphs, supervision)
        return Output(self.decode(encoded, batch, graphs))

    def _roll(
        self, batch: Batch, graphs: Graphs, supervision: Supervision | None
    ) -> Float[Tensor, "batch knot node channel"]:
        graph: Graph = graphs.graph
        inputs = self._inputs(batch, graph)
        if supervision is not None:
            supervision = self._usable(supervision, batch, graphs)
        forecast = self.roll(inputs, graph.own, supervision)
        now = inputs.last if self.base is None else torch.zeros_like(inputs.last)
        return torch.cat([now[:, None], forecast], dim=1)

    def _inputs(self, batch: Batch, graph: Graph) -> Inputs:
        """Regular, without gaps; silent nodes take their neighbours' mean, in every channel."""
        recent = batch.recent(self.time_spec.past)
        values, known = on_regular_lags(recent, self.time_spec)  # newest first
        if known is not None:
            weight = known.to(values.dtype)[:, None].expand_as(values)
            sums, counts = (
                graph.mean((a * weight).permute(2, 0, 1, 3).contiguous()).permute(1, 2, 0, 3)
                for a in (values, torch.ones_like(values))
            )
            values = torch.where(known[:, None], values, sums / counts.clamp(min=1e-6))
        past = values.flip(1)
        steps = torch.arange(
            1 - self.time_spec.past, self.time_spec.horizon + 1, device=past.device
        )
        time_spec = self._calendar(batch, steps.to(past.dtype))
        here = time_spec[:, : self.time_spec.past, None].expand(-1, -1, past.shape[2], -1)
        return Inputs(
            torch.cat([past, here], -1), time_spec[:, self.time_spec.past :], self.channels
        )

    def _calendar(
        self, batch: Batch, steps: Float[Tensor, " step"]
    ) -> Float[Tensor, "batch step extra"]:
        """Sine and cosine of the time of year and of day, so many steps from the issue time."""
        periods = sent(torch.tensor(self.time_spec.periods, dtype=torch.float64), steps.device)
        turn = steps.double()[:, None] * self.time_spec.step / periods  # step period
        phase = batch.issue_time.double()[:, None] + turn[None]
        angle = (2 * torch.pi * (phase % 1.0)).to(steps.dtype)
        return torch.cat([angle.sin(), angle.cos()], dim=-1)

    def _usable(self, supervision: Supervision, batch: Batch, graphs: Graphs) -> Supervision | None:
        """The labels at the trained leads, as what is left over where the baseline corrects a base."""
        lead, regular = batch.on_host.lead, torch.arange(1, self.time_spec.horizon + 1)
        if lead.shape[1] != len(regular) or (lead - regular).abs().max() > 1e-3:
            return None
        if self.base is None:
            return supervision
        regressors: Regressors = self.base.regressors(batch, graphs.links.stencil)
        base, scale = self.base.forecast(regressors, batch), self.base.scale(regressors, batch)
        return replace(supervision, target=(supervision.target - base) / scale)

    def fit_closed_form(self, train: Windows, validation: Windows, nodes: Points) -> None:
        if self.base is not None:
            fit_linear(self.base, train, validation, nodes)

    @property
    def _where(self) -> tuple[torch.device, torch.dtype]:
        weight = next(self.parameters())
        return weight.device, weight.dtype


def dense(inputs: int, outputs: int, maps: int = 1, bias: bool = True) -> nn.Linear:
    """`maps` linear maps side by side in one matrix, each with Xavier's initial weights."""
    linear = nn.Linear(inputs, outputs * maps, bias=bias)
    bound = math.sqrt(6.0 / (inputs + outputs))
    nn.init.uniform_(linear.weight, -bound, bound)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear
