r"""STONet: lift, encode, decode, project. The paper's figure.

v_t = P(u_t)                                lift      each frame separately
v_enc_t = K_{a_t} v_t                       encode    graph kernels on multipole levels
v_dec(x, t) = G(v_enc)(x, t)                decode    branch x trunk at any x and t
u = base + scale (P'(v_dec) + a - g base)   project   base: the linear forecast

a and g are the outputs of the point-wise residual network, scale is the RMSE of the base.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor, nn

from stonet.config import Config
from stonet.data.batch import Batch, hide_values
from stonet.data.geometry import Points
from stonet.data.resampling import between_leads, on_leads
from stonet.data.time_spec import TimeSpec
from stonet.data.windows import Windows
from stonet.errors import UsageError
from stonet.graph.halo import Adjacency, build_adjacency, subgraph
from stonet.graph.multipole import (
    MultipoleGraph,
    assign_levels,
    build_graph,
    find_radii,
    levels_for,
)
from stonet.graph.neighbours import Describe, edge_width, own_nodes, within_radius
from stonet.linear.fit import fit_linear
from stonet.linear.local_polynomials import Stencil, make_stencil, stencil_nodes
from stonet.linear.regression import LinearForecast, Regressors
from stonet.models.forecaster import (
    Encoding,
    Forecaster,
    FrameEncoding,
    Graphs,
    NodeGraph,
    Output,
    QueryGraph,
    Supervision,
    Tile,
    narrow,
)
from stonet.models.residual_mlp import (
    Augmentation,
    PointFeatures,
    PointSamples,
    ResidualEnsemble,
    ResidualMLP,
    corrected,
)
from stonet.models.site_climatology import SiteClimatology
from stonet.operators.branch import DecoderGraph
from stonet.operators.decoder import DecoderInput, Sizes
from stonet.operators.decoder_variants import build_decoder
from stonet.operators.encoder import MultipoleEncoder


@dataclass(frozen=True)
class EncoderGraph(NodeGraph):
    """The nodes as the encoder needs them."""

    multipole: MultipoleGraph
    position: Float[Tensor, "node m"]


@dataclass(frozen=True)
class STONetQueries(QueryGraph):
    """The queries as decoder, linear forecast and residual network need them."""

    decoder: DecoderGraph
    stencil: Stencil | None
    site: Float[Tensor, "query statistic"] | None = None


class STONetwork(Forecaster):
    """The spatio-temporal operator network, for any number of points.

    Args:
        config: sizes and choices; its graph section must hold resolved radii (`resolve_graph`).
        time_spec: step, past and horizon of the data.
        channels: of the field.
        nodes: the training points. They determine levels, radii, the unit of coordinates and the
            site climatology, but no weight belongs to a node (except in the "fixed" decoder).
    """

    hidden_sensors = 0.1
    consecutive = 4

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__()
        network, graph = config.network, config.graph
        self.nodes, self.network, self.channels = nodes, network, channels
        self.inductive = network.decoder != "fixed"
        self.tiled = network.decoder not in ("fixed", "ode")
        self.frame_wise = not network.window_time
        self.skips_weights = network.terms > 1 or network.kernel == "diag"
        self.seed = graph.seed
        self.levels = assign_levels(nodes, graph.levels, graph.seed)
        self.radii = find_radii(nodes, self.levels, graph)
        self.describe: Describe = "sharp" if network.sharp else "offset"
        self.centre, self.span = _box(nodes)

        dimension = nodes.geometry.dimension
        features = time_spec.features + int(network.window_time)
        flags = channels if channels > 1 else 0  # which channels of a point are observed
        self.lift = nn.Linear(channels + flags, network.latent)  # P
        self.encoder = MultipoleEncoder(dimension, features, graph.levels, network.operators)
        edge = edge_width(self.describe, dimension)
        self.base = (
            None if network.base == "none" else LinearForecast(time_spec, channels, network.base)
        )
        self.residuals, self.climatology, self.time_spec = None, None, time_spec
        if self.base is not None and network.residual_width:
            features = 2 * time_spec.features + self.base.solar_columns
            self.climatology = SiteClimatology(time_spec, channels, nodes)
            size = (self.base.white_width, features, network.residual_width, time_spec, channels)
            here = (self._position(nodes), self.climatology.statistics)
            self.residuals = ResidualEnsemble(
                [ResidualMLP(*size, *here) for _ in range(network.residual_members or 1)]
            )
        self.num_frames = min(network.frames or time_spec.past, time_spec.past)
        sizes = Sizes(
            *(dimension, time_spec.features, edge, self.num_frames, time_spec.horizon, len(nodes)),
            rates=tuple(time_spec.step / period for period in time_spec.periods),
        )
        self.decoder = build_decoder(sizes, network.operators)
        self.project = nn.Linear(network.latent, channels)  # P'
        nn.init.zeros_(self.project.bias)

    def node_graph(self, nodes: Points) -> EncoderGraph:
        """New points join level 0; training points keep theirs; only new points: a new partition.

        Raises:
            UsageError: if the decoder is "fixed" and these are not the training points.
        """
        if not self.inductive and nodes != self.nodes:
            raise UsageError(
                f"The 'fixed' decoder has weights for its {len(self.nodes)} training points, "
                "in their order, and cannot take others. Train with network.decoder=revised."
            )
        level = levels_for(nodes, self.nodes, self.levels, self.seed)
        multipole = build_graph(nodes, level, self.radii, self._encoder_edges)
        position = self._position(nodes).to(*self._device_dtype)
        return EncoderGraph(multipole.to(*self._device_dtype), position)

    def query_graph(self, nodes: Points, queries: Points) -> STONetQueries:
        """The neighbouring nodes of each query, for the decoder and for the linear forecast."""
        graph = self._decoder_graph(queries, nodes)
        if self.network.decoder == "ode":
            among = graph if queries is nodes else self._decoder_graph(nodes, nodes)
            graph = replace(graph, among_nodes=among)
        stencil = None
        if self.base is not None:
            stencil = make_stencil(queries, nodes, self.base.covariance).to(*self._device_dtype)
        return STONetQueries(graph.to(*self._device_dtype), stencil, self._site(queries))

    def adjacency(self, nodes: Points) -> Adjacency:
        """All edges of encoder, decoder and linear forecast."""
        if not self.tiled:
            return super().adjacency(nodes)  # raises
        level = levels_for(nodes, self.nodes, self.levels, self.seed)
        near = None if self.base is None else stencil_nodes(nodes, nodes)
        return build_adjacency(nodes, level, self.radii, near)

    def tile(self, adjacency: Adjacency, core: Int64[np.ndarray, " core"]) -> Tile:
        """The core with its halo, and their graphs."""
        part = subgraph(adjacency, core, self.network.layers, self._encoder_edges, self.describe)
        own = torch.arange(len(core))
        decoder = DecoderGraph(self._position(part.core), part.decoder, own)
        stencil = None
        if self.base is not None:
            stencil = make_stencil(part.core, part.points, self.base.covariance, part.near)
            stencil = replace(stencil, own=own).to(*self._device_dtype)
        position = self._position(part.points).to(*self._device_dtype)
        nodes = EncoderGraph(part.multipole.to(*self._device_dtype), position)
        queries = STONetQueries(decoder.to(*self._device_dtype), stencil, self._site(part.core))
        return Tile(part.nodes, len(core), Graphs(nodes, queries))

    def encode(self, batch: Batch, graph: NodeGraph) -> FrameEncoding:
        """v_enc of every distinct frame of the batch."""
        graph, values = narrow(graph, EncoderGraph), batch.frames
        if self.channels > 1:
            observed = batch.observed
            flags = torch.ones_like(values) if observed is None else observed.to(values.dtype)
            values = torch.cat([values, flags], dim=-1)
        lifted = self.lift(values)
        latent = self.encoder(
            lifted, batch.frame_time, graph.position, batch.present, graph.multipole
        )
        return FrameEncoding(latent)

    def decode(
        self, encoding: Encoding, batch: Batch, graphs: Graphs
    ) -> Float[Tensor, "batch future query channel"]:
        """The linear forecast, corrected by P'(v_dec) and by the residual network."""
        past = batch.past[:, -self.num_frames :]
        present = None if batch.present is None else batch.present[past]
        latent = narrow(encoding, FrameEncoding).latent[past]
        return self._forecast(latent, present, batch, graphs)

    def forward(
        self, batch: Batch, graphs: Graphs, supervision: Supervision | None = None
    ) -> Output:
        """Encode and decode; frames that only the linear forecast uses are not encoded."""
        newest = batch.newest(self.num_frames)
        encoding = self.encode(newest, graphs.nodes)
        present = None if newest.present is None else newest.present[newest.past]
        forecast = self._forecast(encoding.latent[newest.past], present, batch, graphs)
        return Output(forecast, self.reconstruct(encoding), newest)

    @torch.no_grad()
    def point_samples(
        self,
        windows: Windows,
        chosen: Int64[np.ndarray, " window"],
        nodes: Points,
        points: Int64[np.ndarray, " point"],
        augmentation: Augmentation,
    ) -> PointSamples:
        """Training samples of the residual network: the chosen windows at some of the nodes."""
        assert self.base is not None and self.climatology is not None  # it needs both
        queries = nodes.take(points)
        stencil = make_stencil(queries, nodes, self.base.covariance)
        stencil = replace(stencil, own=torch.from_numpy(points))  # if points coincide, this one
        stencil, near = stencil.restrict()
        stencil = stencil.to(*self._device_dtype)
        batch = windows.take(near).inputs(chosen)
        if augmentation.gaps:
            batch = hide_values(batch, augmentation.gaps, seed=int(chosen.sum()))
        regressors = self.base.regressors(batch, stencil)
        regressors = regressors.without_history(augmentation.without_history)
        base = self.base.at_trained_leads(regressors, batch)
        place = self._position(queries).to(*self._device_dtype)
        site = self.climatology.shown(queries, augmentation.as_unseen)
        features = self._point_features(regressors, base, batch, stencil, place, site)
        features = PointFeatures(*(part.flatten(0, 1) for part in vars(features).values()))
        target, mask = windows.take(points).targets(chosen)
        mask = mask & on_leads(batch.lead)[:, :, None, None]
        parts = (
            self.base.interpolate_leads(base, batch),
            self.base.residual_scale(regressors, batch),
            target,
            mask,
        )
        return PointSamples(features, *(part.transpose(1, 2).flatten(0, 1) for part in parts))

    def _forecast(
        self,
        latent: Float[Tensor, "batch past node latent"],
        present: Bool[Tensor, "batch past node"] | None,
        batch: Batch,
        graphs: Graphs,
    ) -> Float[Tensor, "batch future query channel"]:
        """Base + scale (P'(v_dec) + a - g base), from the encoded past."""
        queries = narrow(graphs.queries, STONetQueries)
        inputs = DecoderInput(
            latent=latent,
            present=present,
            lag=batch.on_host.lag[:, -self.num_frames :],
            lead=batch.on_host.lead,
            calendar=batch.future_time,
            issue=batch.issue_time,
        )
        correction = self.project(self.decoder(inputs, queries.decoder))
        if self.base is None or queries.stencil is None:
            return correction
        regressors = self.base.regressors(batch, queries.stencil)
        at_trained_leads = self.base.at_trained_leads(regressors, batch)
        base = self.base.interpolate_leads(at_trained_leads, batch)
        scale = self.base.residual_scale(regressors, batch)
        if self.residuals is not None:
            assert queries.site is not None  # made with the query graph
            here = queries.decoder.position, queries.site
            residual = self.residuals(
                self._point_features(regressors, at_trained_leads, batch, queries.stencil, *here)
            )
            share = between_leads(batch.lead, self.time_spec.horizon).expand(len(residual), -1, -1)
            correction = correction + corrected(
                base, torch.einsum("btl,bqlc->btqc", share, residual)
            )
        return base + scale * correction

    def _point_features(
        self,
        regressors: Regressors,
        at_trained_leads: Float64[Tensor, "batch query lead channel"],
        batch: Batch,
        stencil: Stencil,
        place: Float[Tensor, "query m"],
        site: Float[Tensor, "*batch query statistic"],
    ) -> PointFeatures:
        """The inputs of the residual network at every query."""
        assert self.base is not None
        white = self.base.whiten(regressors).to(batch.frames.dtype)
        phase = 2 * torch.pi * batch.issue_time
        time = torch.cat([phase.sin(), phase.cos()], dim=-1)[:, None]
        time = time.expand(-1, white.shape[1], -1)
        sun = self.base.solar_elevation(batch, stencil)
        time = time if sun is None else torch.cat([time, sun], dim=-1)
        base = at_trained_leads[:, :, 1:].clamp(self.base.lower, self.base.upper).to(white.dtype)
        here = (part.expand(*regressors.kind.shape, -1) for part in (place, site))
        return PointFeatures(white, regressors.has_history, base, time, *here)

    def reconstruct(self, encoding: Encoding) -> Float[Tensor, "frame node channel"]:
        """P'(v_enc): the inputs as reconstructed from the encoding."""
        return self.project(narrow(encoding, FrameEncoding).latent)

    def isolated(self, graphs: Graphs) -> int:
        """Points without a neighbour within the radius, in encoder and decoder."""
        encoder, queries = narrow(graphs.nodes, EncoderGraph), narrow(graphs.queries, STONetQueries)
        return encoder.multipole.isolated + queries.decoder.neighbours.isolated

    def fit_closed_form(self, train: Windows, validation: Windows, nodes: Points) -> None:
        """Fit the linear forecast and the site climatology."""
        if self.base is not None:
            fit_linear(self.base, train, validation, nodes)
        if self.climatology is not None:
            self.climatology.fit(train)

    @property
    def _encoder_edges(self) -> Describe:
        """The edge features of the encoder."""
        return "sharp" if self.network.sharp else "nothing"

    @property
    def _device_dtype(self) -> tuple[torch.device, torch.dtype]:
        return self.lift.weight.device, self.lift.weight.dtype

    def _decoder_graph(self, queries: Points, nodes: Points) -> DecoderGraph:
        """The nodes within the decoder's radius of each query."""
        neighbours = within_radius(queries, nodes, self.radii.decoder, self.describe)
        own = torch.from_numpy(own_nodes(queries, nodes))
        return DecoderGraph(self._position(queries), neighbours, own)

    def _site(self, points: Points) -> Float[Tensor, "point statistic"] | None:
        """The climatology of each point, an input of the residual network."""
        if self.climatology is None:
            return None
        return self.climatology.at(points).to(*self._device_dtype)

    def _position(self, points: Points) -> Float[Tensor, "point m"]:
        """Coordinates of order one: unit vectors on a sphere; on a plane relative to `_box`."""
        return torch.from_numpy((points.embedded - self.centre) / self.span).float()


def _box(nodes: Points) -> tuple[np.ndarray, float]:
    """Centre and half the longest side of the box around the nodes; (0, 1) on a sphere."""
    if nodes.kind == "sphere":
        return np.zeros(3), 1.0
    low, high = nodes.embedded.min(0), nodes.embedded.max(0)
    return (low + high) / 2, max(float((high - low).max()) / 2, 1e-12)
