"""The common part of the published baselines: nodes on a graph, regular steps in and out.

The published models cannot handle gaps, other times or other places. To give them the same task as
STONet, gaps in the past are filled in time and from neighbours, times between the trained leads are
interpolated, and a place that is no node gets the weighted mean of the forecasts at the nearest
nodes. Beside the values all get the calendar, the place and the solar elevation. Width, learning
rate and length of the past are chosen by a race (`raced`), in the same budget as STONet's.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Generic, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
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
from stonet.linear.regression import LinearForecast
from stonet.models.baselines.graph_filters import Operator, adjacency, random_walk
from stonet.models.forecaster import (
    Encoding,
    Forecaster,
    Graphs,
    NodeGraph,
    Output,
    QueryGraph,
    Supervision,
    narrow,
)
from stonet.models.point_inputs import PlaceAxes, Sites, make_sites, sun_at_leads, sun_width
from stonet.system.devices import in_float32, to_device

MIN_NEIGHBOURS, MAX_NEIGHBOURS = 5, 25  # of a node; 25 as in the benchmark of the papers
NODES_PER_NEIGHBOUR = 14  # fewer neighbours where nodes are few: else a mean blurs everything
DEFAULT_PAST = 12  # input steps, as in the papers; a race may choose more
INTERPOLATION_NODES = 4  # nodes whose forecasts are averaged at a query that is no node
Operators = TypeVar("Operators")  # what the layers of a baseline need of the graph


@dataclass(frozen=True)
class BaselineNodes(NodeGraph, Generic[Operators]):
    """The operators of a baseline, and the mean over neighbours, for nodes without a past.

    Args:
        operators: as the baseline's `operators` returns them.
        mean: over neighbours.
        sites: place and local time of the nodes.
    """

    operators: Operators
    mean: Operator
    sites: Sites


@dataclass(frozen=True)
class BaselineQueries(QueryGraph):
    """The node at each query, or the nearest nodes and their weights.

    Args:
        own: number of nodes if there is none.
        near: nearest nodes.
        weight: of these nodes.
        stencil: of the linear base, if there is one.
    """

    own: Int[Tensor, " query"]
    near: Int[Tensor, "query near"]
    weight: Float[Tensor, "query near"]
    stencil: Stencil | None


@dataclass(frozen=True)
class NodeForecast(Encoding):
    """The forecast at the nodes, at the leads 0, 1, ..., horizon.

    Args:
        values: in normalised units.
    """

    values: Float[Tensor, "batch lead node channel"]


@dataclass(frozen=True)
class Inputs:
    """The inputs of a baseline; the calendar is the same at all nodes.

    Args:
        past: channels, calendar, place and the sun at all leads; oldest step first.
        calendar: at the leads 1, 2, ..., horizon.
        channels: number of channels.
        extra: place and sun at these leads.
        imputed: values of the past that were filled in from the other times of the node; None:
            none, or the inputs were not at regular times.
    """

    past: Float[Tensor, "batch past node feature"]
    calendar: Float[Tensor, "batch future calendar"]
    channels: int
    extra: Float[Tensor, "batch future node extra"] | None = None
    imputed: Bool[Tensor, "batch past node channel"] | None = None

    @property
    def last(self) -> Float[Tensor, "batch node channel"]:
        """The values at the issue time."""
        return self.past[:, -1, :, : self.channels]

    def ahead(self) -> Float[Tensor, "batch future node feature"]:
        """Everything that is known of the leads beforehand: calendar, place and sun."""
        nodes = self.past.shape[2]
        calendar = self.calendar[:, :, None].expand(-1, -1, nodes, -1)
        return calendar if self.extra is None else torch.cat([calendar, self.extra], dim=-1)


class GraphBaseline(Forecaster, Generic[Operators]):
    """A baseline; subclasses define `operators` and `forecast_nodes`.

    Args:
        config: its section `baseline`; with `baseline.base` the model corrects a linear forecast,
            as STONet does.
        time_spec: step, past and horizon of the data.
        channels: of the field.
        nodes: the training points.
    """

    lr = 5e-3
    supported_settings: frozenset[str] = frozenset()  # of those that not all baselines have
    default_past: int | None = DEFAULT_PAST  # steps; None: the complete past
    raced: tuple[tuple[int, float], ...] = ()  # widths and learning rates; the paper's come first

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__()
        for name in sorted({"order", "embedding", "legacy"} - self.supported_settings):
            if getattr(config.baseline, name):
                raise UsageError(
                    f"{type(self).__name__} has no use for baseline.{name}: leave it out."
                )
        base, used = config.baseline.base, config.baseline.past or self.default_past
        past = min(used or time_spec.past, time_spec.past)
        self.base = None if base == "none" else LinearForecast(time_spec, channels, base)
        self.time_spec = replace(time_spec, past=past)  # the past that the baseline itself uses
        self.full_past = time_spec.past
        self.baseline, self.channels, self.nodes = config.baseline, channels, nodes
        default = min(max(len(nodes) // NODES_PER_NEIGHBOUR, MIN_NEIGHBOURS), MAX_NEIGHBOURS)
        self.num_neighbours = config.baseline.neighbours or default
        self.calendar_width = 2 * time_spec.features  # sine and cosine of day and year
        extras = config.baseline.extras and not config.baseline.legacy
        self.axes = PlaceAxes(nodes) if extras else None
        place, leads = (self.axes.width, sun_width(time_spec)) if self.axes else (0, 0)
        self.input_width = channels + self.calendar_width + place + leads
        self.ahead_width = self.calendar_width + place + min(leads, 1)

    def candidates(
        self, config: Config, samples: int
    ) -> tuple[Mapping[str, str | int | float], ...]:
        """Widths and learning rates, the smallest also with the complete past."""
        names = "baseline.hidden", "train.lr"
        candidates: list[Mapping[str, str | int | float]] = [
            dict(zip(names, pair, strict=True)) for pair in self.raced
        ]
        if candidates and self.full_past > (self.default_past or self.full_past):
            candidates.append({**candidates[-1], "baseline.past": self.full_past})
        return tuple(candidates)

    def adopt_closed_form(self, other: Forecaster) -> bool:
        """Copy the linear forecast, which depends neither on the width nor on the used past."""
        if self.base is None or not isinstance(other, GraphBaseline) or other.base is None:
            return False
        self.base.load_state_dict(other.base.state_dict())
        return True

    @abstractmethod
    def operators(self, nodes: Points) -> Operators:
        """What the layers of the baseline need of the graph of these nodes.

        Args:
            nodes: points with values.
        """

    @abstractmethod
    def forecast_nodes(
        self, inputs: Inputs, operators: Operators, supervision: Supervision | None
    ) -> Float[Tensor, "batch future node channel"]:
        """The forecast at the nodes and the leads 1, 2, ..., horizon.

        Args:
            inputs: the past, without gaps.
            operators: result of `operators`.
            supervision: targets for teacher forcing; only in training.
        """

    def node_graph(self, nodes: Points) -> BaselineNodes[Operators]:
        """The operators of these nodes.

        Raises:
            UsageError: if the model has weights for each node and these are other nodes.
        """
        if not self.inductive and nodes != self.nodes:
            raise UsageError(
                f"{type(self).__name__} has weights for each of its {len(self.nodes)} training "
                "points, in their order, and cannot take others."
            )
        mean = random_walk(adjacency(nodes, self.num_neighbours))
        axes = self.axes or PlaceAxes(nodes)
        sites = make_sites(nodes, axes).to(*self._device_dtype)
        return BaselineNodes(self.operators(nodes), Operator.of(mean, *self._device_dtype), sites)

    def query_graph(self, nodes: Points, queries: Points) -> BaselineQueries:
        """The nearest nodes of each query, weighted by 1 / distance^2."""
        distance, index = nearest_nodes(queries, nodes, INTERPOLATION_NODES)
        weight = 1.0 / np.maximum(distance, 1e-9) ** 2
        stencil = None
        if self.base is not None:
            stencil = make_stencil(queries, nodes, self.base.covariance).to(*self._device_dtype)
        return BaselineQueries(
            torch.from_numpy(own_nodes(queries, nodes)).to(self._device_dtype[0]),
            torch.from_numpy(index).to(self._device_dtype[0]),
            torch.from_numpy(weight / weight.sum(1, keepdims=True)).to(*self._device_dtype),
            stencil,
        )

    def encode(self, batch: Batch, graph: NodeGraph) -> NodeForecast:
        """The forecast at the nodes."""
        return self._at_trained_leads(batch, graph, None)

    @in_float32
    def decode(
        self, encoding: Encoding, batch: Batch, graphs: Graphs
    ) -> Float[Tensor, "batch future query channel"]:
        """The forecast at the queries and the leads of the batch."""
        values = narrow(encoding, NodeForecast).values
        queries = narrow(graphs.queries, BaselineQueries)
        share = between_leads(batch.lead.to(values.dtype), self.time_spec.horizon)
        at_nodes = torch.einsum("btl,blnc->btnc", share.expand(len(values), -1, -1), values)
        mean = (at_nodes[:, :, queries.near] * queries.weight[..., None]).sum(3)
        nodes = at_nodes.shape[2]
        own = at_nodes[:, :, queries.own.clamp(max=nodes - 1)]
        forecast = torch.where((queries.own < nodes)[:, None], own, mean)
        if self.base is None or queries.stencil is None:
            return forecast
        base, scale = self._base(batch, queries.stencil)
        return base + scale * forecast

    def forward(
        self, batch: Batch, graphs: Graphs, supervision: Supervision | None = None
    ) -> Output:
        """Forecast at the nodes, with teacher forcing in training, then at the queries."""
        if supervision is not None:
            supervision = self._usable(supervision, batch, graphs)
        encoding = self._at_trained_leads(batch, graphs.nodes, supervision)
        return Output(self.decode(encoding, batch, graphs))

    def _at_trained_leads(
        self, batch: Batch, graph: NodeGraph, supervision: Supervision | None
    ) -> NodeForecast:
        """The forecast at the nodes; lead 0 is the newest value, or no correction of the base."""
        graph = narrow(graph, BaselineNodes)
        inputs = self._with_extras(self._inputs(batch, graph.mean), batch, graph.sites)
        forecast = self.forecast_nodes(inputs, graph.operators, supervision)
        now = inputs.last if self.base is None else torch.zeros_like(inputs.last)
        return NodeForecast(torch.cat([now[:, None], forecast], dim=1))

    def _base(self, batch: Batch, stencil: Stencil) -> tuple[Tensor, Tensor]:
        """The linear forecast and its RMSE, the unit of the correction."""
        assert self.base is not None
        regressors = self.base.regressors(batch, stencil)
        return self.base.forecast(regressors, batch), self.base.residual_scale(regressors, batch)

    def _inputs(self, batch: Batch, mean: Operator) -> Inputs:
        """Regular steps without gaps; a node without a past gets the mean of its neighbours."""
        recent = batch.recent(self.time_spec.past)
        values, present = on_regular_lags(recent, self.time_spec)  # newest first
        if present is not None:
            weight = present.to(values.dtype)[:, None].expand_as(values)
            sums, counts = (
                mean((a * weight).permute(2, 0, 1, 3).contiguous()).permute(1, 2, 0, 3)
                for a in (values, torch.ones_like(values))
            )
            values = torch.where(present[:, None], values, sums / counts.clamp(min=1e-6))
        imputed = None
        if recent.observed is not None and recent.regular(self.time_spec.past):
            imputed = ~recent.observed[recent.past]
            if present is not None:
                imputed &= present[:, None]
        past = values.flip(1)
        steps = torch.arange(
            1 - self.time_spec.past, self.time_spec.horizon + 1, device=past.device
        )
        calendar = self._calendar(batch, steps.to(past.dtype))
        here = calendar[:, : self.time_spec.past, None].expand(-1, -1, past.shape[2], -1)
        ahead = calendar[:, self.time_spec.past :]
        return Inputs(torch.cat([past, here], -1), ahead, self.channels, imputed=imputed)

    def _with_extras(self, inputs: Inputs, batch: Batch, sites: Sites) -> Inputs:
        """The inputs with place, and with the sun at all leads where there are hours."""
        if self.axes is None:
            return inputs
        size, steps = inputs.past.shape[:2]
        place = sites.place.to(inputs.past.dtype)
        parts = [inputs.past, place.expand(size, steps, -1, -1)]
        extra = place.expand(size, self.time_spec.horizon, -1, -1)
        sun = sun_at_leads(batch, sites, self.time_spec)  # point batch lead
        if sun is not None:
            sun = sun.to(place.dtype)
            parts.append(sun.transpose(0, 1)[:, None].expand(-1, steps, -1, -1))
            extra = torch.cat([extra, sun[..., 1:].permute(1, 2, 0)[..., None]], dim=-1)
        return replace(inputs, past=torch.cat(parts, dim=-1), extra=extra)

    def _calendar(
        self, batch: Batch, steps: Float[Tensor, " step"]
    ) -> Float[Tensor, "batch step calendar"]:
        """Sine and cosine of the time of year and of day, some steps from the issue time."""
        periods = to_device(torch.tensor(self.time_spec.periods, dtype=torch.float64), steps.device)
        turn = steps.double()[:, None] * self.time_spec.step / periods  # step period
        phase = batch.issue_time.double()[:, None] + turn[None]
        angle = (2 * torch.pi * (phase % 1.0)).to(steps.dtype)
        return torch.cat([angle.sin(), angle.cos()], dim=-1)

    def _usable(self, supervision: Supervision, batch: Batch, graphs: Graphs) -> Supervision | None:
        """The targets at the trained leads, as corrections of the base if there is one."""
        lead, regular = batch.on_host.lead, torch.arange(1, self.time_spec.horizon + 1)
        if lead.shape[1] != len(regular) or (lead - regular).abs().max() > 1e-3:
            return None
        stencil = narrow(graphs.queries, BaselineQueries).stencil
        if stencil is None:
            return supervision
        base, scale = self._base(batch, stencil)
        return replace(supervision, target=(supervision.target - base) / scale)

    def fit_closed_form(self, train: Windows, validation: Windows, nodes: Points) -> None:
        """Fit the linear forecast that the model corrects, if there is one."""
        if self.base is not None:
            fit_linear(self.base, train, validation, nodes)

    @property
    def _device_dtype(self) -> tuple[torch.device, torch.dtype]:
        weight = next(chain(self.parameters(), self.buffers()))
        return weight.device, weight.dtype


def dense(inputs: int, outputs: int, maps: int = 1, bias: bool = True) -> nn.Linear:
    """`maps` linear maps side by side in one matrix, each with Xavier initial weights.

    Args:
        inputs: width of the input.
        outputs: width of each result.
        maps: number of maps.
        bias: whether they have one, initially zero.
    """
    linear = nn.Linear(inputs, outputs * maps, bias=bias)
    bound = math.sqrt(6.0 / (inputs + outputs))
    nn.init.uniform_(linear.weight, -bound, bound)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear
