r"""The paper's architecture frame by frame, well conditioned; no base and no other network.

    v_t        = P u_t                                   lift, each frame by itself
    v_enc_t    = K_{a_t} v_t                             graph kernels on levels, residual
    v_dec(x,t) = C (h(x) * tau(x, t))                    branch x trunk (`operators/modal.py`)
    u(x, t)    = u(x, t_0) + s(t) (P' v_dec(x, t) + c(t))
    loss       : MAE of u + alpha MAE of P' v_enc

The branch sums over neighbours and past times with kernels xi in a basis of temporal modes psi_m
of the training past, whitened in float64. s(t) is 1.25 times the mean change of the field over the
lead, so that outputs are of order one at every lead. Gaps of the past are filled in time; a point
without a past gets anchor and own modes of the nearest nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from stonet.config import Config
from stonet.data.batch import Batch
from stonet.data.geometry import Points
from stonet.data.resampling import on_regular_lags
from stonet.data.time_spec import TimeSpec
from stonet.data.windows import Windows, in_batches
from stonet.graph.neighbours import edge_width, nearest_nodes
from stonet.models.forecaster import (
    Encoding,
    FrameEncoding,
    Graphs,
    NodeGraph,
    Output,
    Supervision,
    narrow,
)
from stonet.models.paper import FrameNetwork, PaperNodes, PaperQueries
from stonet.operators.branch import DecoderGraph, Nearest
from stonet.operators.branch_trunk import hat_functions
from stonet.operators.decoder import DecoderInput, Sizes
from stonet.operators.decoder_variants import join_terms
from stonet.operators.encoder import MultipoleEncoder
from stonet.operators.modal import ModalDecoder, at_queries, whitened_modes
from stonet.system.devices import to_device

NEAREST = 5  # nodes whose past stands for that of a point without one, itself included
CLOSEST = 1e-8  # distance of a point to itself, in radii
FITTED_WINDOWS, FITTED_VALUES = 2000, 2**24  # most windows and values that modes are fitted on
MARGIN = 1.25  # of the scale over the mean change


class OperatorNetwork(FrameNetwork):
    """The frame-by-frame operator, for any number of points.

    Args:
        config: its section `operator`; the graph section must hold resolved radii.
        time_spec: step, past and horizon of the data.
        channels: of the field.
        nodes: the training points.
    """

    lr = 1e-2
    batch = 16
    consecutive = 4
    muon = True
    adam_only = ("decoder.trunk",)

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        operator = config.operator
        super().__init__(config, operator, time_spec, channels, nodes)
        self.operator = operator
        self.skips_weights = operator.terms > 1 or operator.kernel == "diag"
        past, horizon, dimension = time_spec.past, time_spec.horizon, nodes.geometry.dimension
        edge = edge_width(self.decoder_edges, dimension)
        sizes = Sizes(dimension, time_spec.features, edge, past, horizon, len(nodes))
        self.lift = nn.Linear(channels, operator.latent)  # P
        self.encoder = MultipoleEncoder(
            dimension, time_spec.features, config.graph.levels, operator
        )
        history = past * channels
        decoders = [ModalDecoder(sizes, operator, history) for _ in range(operator.terms)]
        self.decoder = join_terms(list(decoders), horizon)
        self.project = nn.Linear(operator.latent, channels)  # P'
        nn.init.normal_(self.project.weight, std=1 / math.sqrt(operator.latent))
        nn.init.zeros_(self.project.bias)
        self.shift = nn.Parameter(torch.zeros(horizon, channels))  # c
        self.basis: Tensor  # psi: of the encoded frames
        self.history_modes: Tensor  # of a node's own values, all channels together
        self.history_mean: Tensor
        self.scale: Tensor  # s
        self.register_buffer("basis", torch.eye(past, dtype=torch.float64))
        self.register_buffer("history_modes", torch.eye(history, dtype=torch.float64))
        self.register_buffer("history_mean", torch.zeros(history, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(horizon, channels))

    def query_graph(self, nodes: Points, queries: Points) -> PaperQueries:
        """The neighbouring nodes of each query, and the nearest ones."""
        graph = self._decoder_graph(queries, nodes)
        _, index = nearest_nodes(queries, nodes, NEAREST)
        nearest = self._nearest(queries, nodes, index, graph)
        return PaperQueries(replace(graph, nearest=nearest).to(*self._device_dtype))

    def encode(self, batch: Batch, graph: NodeGraph) -> FrameEncoding:
        """v_enc of every frame, gaps filled."""
        return self._encode(self._filled(batch), graph)

    def decode(
        self, encoding: Encoding, batch: Batch, graphs: Graphs
    ) -> Float[Tensor, "batch future query channel"]:
        """The newest value, changed by s (P' v_dec + c)."""
        return self._decode(encoding, self._filled(batch), graphs)

    def forward(
        self, batch: Batch, graphs: Graphs, supervision: Supervision | None = None
    ) -> Output:
        """Encode and decode."""
        filled = self._filled(batch)
        encoding = self._encode(filled, graphs.nodes)
        forecast = self._decode(encoding, filled, graphs)
        return Output(forecast, self.reconstruct(encoding), filled)

    def _encode(self, filled: Batch, graph: NodeGraph) -> FrameEncoding:
        """v_enc of every frame of a batch without gaps."""
        graph, lifted = narrow(graph, PaperNodes), self.lift(filled.frames)
        return FrameEncoding(
            self.encoder(lifted, filled.frame_time, graph.position, filled.present, graph.multipole)
        )

    def _decode(
        self, encoding: Encoding, filled: Batch, graphs: Graphs
    ) -> Float[Tensor, "batch future query channel"]:
        """The forecast of a batch without gaps."""
        graph = narrow(graphs.queries, PaperQueries).decoder
        known = None if filled.observed is None else filled.observed[filled.past[:, -1]]
        values = filled.frames[filled.past]
        latent = narrow(encoding, FrameEncoding).latent[filled.past]
        inputs = DecoderInput(
            latent=torch.einsum("btnd,tm->bmnd", latent, self.basis.to(latent.dtype)),
            present=None if known is None else known.any(-1)[:, None].expand(latent.shape[:3]),
            lag=filled.on_host.lag,
            lead=filled.on_host.lead,
            calendar=filled.future_time,
            history=self._history(values),
        )
        change = self.project(self.decoder(inputs, graph))
        assert graph.nearest is not None  # made with the query graph
        anchor = at_queries(values[:, -1], graph.nearest, known)
        hat = to_device(hat_functions(inputs.lead, self.time_spec.horizon), change.device)
        scale, shift = (hat @ part.to(hat.dtype) for part in (self.scale, self.shift))
        return anchor[:, None] + scale[:, :, None] * (change + shift[:, :, None])

    def reconstruct(self, encoding: Encoding) -> Float[Tensor, "frame node channel"]:
        """P' v_enc: the inputs as reconstructed from the encoding."""
        return self.project(narrow(encoding, FrameEncoding).latent)

    @torch.no_grad()
    def fit_closed_form(self, train: Windows, validation: Windows, nodes: Points) -> None:
        """The whitened modes of the past and the scale of each lead, from the training windows."""
        width = self.time_spec.past * self.channels
        most = FITTED_VALUES // max(1, len(nodes) * width)
        windows = train.draw(max(1, min(FITTED_WINDOWS, most)))
        change = _Mean((self.time_spec.horizon, self.channels))
        mean, square, frames = _Mean((width,)), _Mean((width, width)), []
        for past, known, target, mask in self._fitted(windows):
            error = (target - past[:, -1:]).abs().double() * mask
            change.add(error.sum((0, 2)), mask.sum((0, 2)))
            own = past.transpose(1, 2)[known].flatten(1).double()  # row (past channel)
            mean.add(own.sum(0), len(own))
            square.add(own.T @ own, len(own))
            frames.append(past[:, -1][known])
        self.scale.copy_(MARGIN * change.result.clamp(min=1e-6))
        if self.operator.basis == "lags" or not mean.count:
            return
        covariance = square.result - torch.outer(mean.result, mean.result)
        noise = rounding_variance(torch.cat(frames))
        self.history_modes.copy_(whitened_modes(covariance, noise))
        self.history_mean.copy_(mean.result)
        by_channel = covariance.unflatten(0, (-1, self.channels)).unflatten(2, (-1, self.channels))
        shared = torch.einsum("scuc->su", by_channel) / self.channels
        self.basis.copy_(whitened_modes(shared, noise))

    def _fitted(self, windows: Windows) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Past (with gaps filled), nodes that have one, target and its mask, some windows each."""
        for chosen in in_batches(windows, 64):
            batch = self._filled(windows.inputs(chosen))
            past = batch.frames[batch.past]
            known = torch.ones(past.shape[0], past.shape[2], dtype=torch.bool)
            if batch.observed is not None:
                known = batch.observed[batch.past[:, -1]].all(-1)
            target, mask = windows.targets(chosen)
            yield past, known, target, mask & known[:, None, :, None]

    def _history(
        self, values: Float[Tensor, "batch past node channel"]
    ) -> Float[Tensor, "batch node mode"]:
        """The modes z of every node, in float64: small modes are differences of large numbers."""
        own = values.transpose(1, 2).flatten(2).double() - self.history_mean
        return (own @ self.history_modes).to(values.dtype)

    def _filled(self, batch: Batch) -> Batch:
        """The batch itself if it is regular without gaps, else its past on regular lags, filled."""
        past = self.time_spec.past
        if batch.observed is None and batch.regular(past):
            return batch
        filled, known = on_regular_lags(batch, self.time_spec)
        values = filled.flip(1)
        rows = torch.arange(values.shape[0] * past, device=values.device).view(-1, past)
        steps = torch.arange(1 - past, 1, dtype=values.dtype).expand(len(batch.lead), -1)
        lag = to_device(steps, values.device)
        rates = torch.tensor([self.time_spec.step / p for p in self.time_spec.periods])
        turned = lag[0, :, None] * to_device(rates.to(values.dtype), values.device)
        time = (batch.issue_time[:, None] + turned) % 1.0
        observed = None
        if known is not None:
            observed = known[:, None].expand_as(values).flatten(0, 1)
        host = None if batch.host is None else replace(batch.host, lag=steps)
        return replace(
            batch,
            frames=values.flatten(0, 1),
            observed=observed,
            frame_time=time.flatten(0, 1).to(batch.frame_time.dtype),
            past=rows,
            lag=lag,
            host=host,
        )

    def _near(self, nodes: Points) -> Int64[np.ndarray, "node near"]:
        """The nodes whose past may stand for that of a node."""
        return nearest_nodes(nodes, nodes, NEAREST)[1]

    def _tile_queries(
        self,
        decoder: DecoderGraph,
        core: Points,
        points: Points,
        near: Int64[np.ndarray, "core near"] | None,
    ) -> PaperQueries:
        """The queries of a tile, with the nearest nodes of all."""
        assert near is not None  # of `_near`
        nearest = self._nearest(core, points, near, decoder)
        return PaperQueries(replace(decoder, nearest=nearest).to(*self._device_dtype))

    def _nearest(
        self,
        queries: Points,
        nodes: Points,
        index: Int64[np.ndarray, "query near"],
        graph: DecoderGraph,
    ) -> Nearest:
        """The nodes of an index, weighted by 1/distance^2."""
        x, y = queries.embedded[:, None], nodes.embedded[index]
        distance = queries.geometry.distance(x, y) / self.radii.decoder
        weight = np.maximum(distance, CLOSEST) ** -2.0
        weight /= weight.sum(1, keepdims=True)
        every = bool((graph.own < len(nodes)).all())
        return Nearest(
            torch.from_numpy(index), torch.from_numpy(weight), graph.own if every else None
        )


class _Mean:
    """A mean in float64, added up batch by batch."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.total = torch.zeros(shape, dtype=torch.float64)
        self.count: Tensor | int = 0

    def add(self, total: Float64[Tensor, "*shape"], count: Tensor | int) -> None:
        self.total, self.count = self.total + total, self.count + count

    @property
    def result(self) -> Float64[Tensor, "*shape"]:
        return self.total / torch.as_tensor(self.count).clamp(min=1)


def rounding_variance(values: Float[Tensor, "row channel"]) -> float:
    """The variance of rounding to the smallest difference of two values, of the coarsest channel.

    Args:
        values: a sample.
    """
    steps = [torch.unique(channel.double()).diff() for channel in values.T]
    return max((float(step.min()) ** 2 / 12 for step in steps if len(step)), default=0.0)
