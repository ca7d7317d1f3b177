r"""STONet: lift, encode, decode, project. The paper's figure.

v_t = P(u_t)                                lift      every frame by itself
v_enc_t = K_{a_t} v_t                       encode    graph kernels on multipole levels
v_dec(x, t) = G(v_enc)(x, t)                decode    branch x trunk at any x and t
u = base + scale (P'(v_dec) + a - g base)   project   base: closed form; a, g: the residuals' advice
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
from stonet.linear.local_polynomials import Stencil, make_stencil, nearest_others
from stonet.linear.regression import LinearForecast, Regressors
from stonet.models.forecaster import Forecaster, Graphs, Output, Supervision, Tile
from stonet.models.residual_mlp import (
    Augmentation,
    PointFeatures,
    PointSamples,
    ResidualEnsemble,
    ResidualMLP,
    corrected,
)
from stonet.models.site_climatology import SiteClimatology
from stonet.operators.branch import Links
from stonet.operators.decoder import DecoderInput, Sizes, build_decoder
from stonet.operators.encoder import MultipoleEncoder


@dataclass(frozen=True)
class NodeGraph:
    """The encoder's side of a graphs."""

    multipole: MultipoleGraph
    position: Float[Tensor, "node m"]


@dataclass(frozen=True)
class QueryLinks:
    """The decoder's side of a graphs."""

    decoder: Links
    stencil: Stencil | None
    site: Float[Tensor, "query statistic"] | None = None


class STONetwork(Forecaster):
    """The spatio-temporal operator network, for any number of points.

    Args:
        config: sizes and choices; its graph section must hold resolved radii (`resolve_graph`).
        time_spec: the data's step, past and horizon.
        channels: of the field.
        nodes: the training points. They fix the levels, the radii and the scale of coordinates,
            and have climatology, but no weight belongs to any of them (save in the "fixed" decoder).
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
        self.seed = graph.seed
        self.levels = assign_levels(nodes, graph.levels, graph.seed)
        self.radii = find_radii(nodes, self.levels, graph)
        self.describe: Describe = "sharp" if network.sharp else "offset"
        self.centre, self.span = _box(nodes)

        dimension = nodes.geometry.dimension
        features = time_spec.features + int(network.window_time)
        flags = channels if channels > 1 else 0  # which channels of a point are there
        self.lift = nn.Linear(channels + flags, network.latent)  # P
        self.encoder = MultipoleEncoder(dimension, features, graph.levels, network)
        edge = edge_width(self.describe, dimension)
        self.base = (
            None if network.base == "none" else LinearForecast(time_spec, channels, network.base)
        )
        self.residuals, self.climatology, self.time_spec = None, None, time_spec
        if self.base is not None and network.residual_width:
            features = 2 * time_spec.features + self.base.suns
            self.climatology = SiteClimatology(time_spec, channels, nodes)
            size = (self.base.width, features, network.residual_width, time_spec, channels)
            here = (self._position(nodes), self.climatology.statistics)
            self.residuals = ResidualEnsemble(
                [ResidualMLP(*size, *here) for _ in range(network.residual_members or 1)]
            )
        self.num_frames = min(network.frames or time_spec.past, time_spec.past)
        sizes = Sizes(
            dimension, time_spec.features, edge, self.num_frames, time_spec.horizon, len(nodes)
        )
        self.decoder = build_decoder(sizes, network)
        self.project = nn.Linear(network.latent, channels)  # P'
        nn.init.zeros_(self.project.bias)

    def graph(self, nodes: Points) -> NodeGraph:
        """New points join level 0; training points keep their level (all new: a new partition)."""
        if not self.inductive and nodes != self.nodes:
            raise UsageError(
                f"The 'fixed' decoder has weights for its {len(self.nodes)} training points, "
                "in their order, and cannot take others. Train with network.decoder=revised."
            )
        level = levels_for(nodes, self.nodes, self.levels, self.seed)
        multipole = build_graph(nodes, level, self.radii, self._seen_by_encoder)
        return NodeGraph(multipole.to(*self._where), self._position(nodes).to(*self._where))

    def links(self, nodes: Points, queries: Points) -> QueryLinks:
        """Each query's nearby nodes, for the decoder and for the base."""
        decoder = self._links(queries, nodes)
        if self.network.decoder == "ode":
            among = decoder if queries is nodes else self._links(nodes, nodes)
            decoder = Links(decoder.position, decoder.neighbours, decoder.own, among)
        stencil = None
        if self.base is not None:
            stencil = make_stencil(queries, nodes, self.base.covariance).to(*self._where)
        return QueryLinks(decoder.to(*self._where), stencil, self._site(queries))

    def adjacency(self, nodes: Points) -> Adjacency:
        if not self.tiled:
            return super().adjacency(nodes)  # which refuses
        level = levels_for(nodes, self.nodes, self.levels, self.seed)
        near = None if self.base is None else nearest_others(nodes, nodes)
        return build_adjacency(nodes, level, self.radii, near)

    def tile(self, adjacency: Adjacency, core: Int64[np.ndarray, " core"]) -> Tile:
        part = subgraph(adjacency, core, self.network.layers, self._seen_by_encoder, self.describe)
        own = torch.arange(len(core))
        links = Links(self._position(part.core), part.decoder, own)
        stencil = None
        if self.base is not None:
            stencil = make_stencil(part.core, part.points, self.base.covariance, part.near)
            stencil = replace(stencil, own=own).to(*self._where)
        position = self._position(part.points).to(*self._where)
        graph = NodeGraph(part.multipole.to(*self._where), position)
        asked = QueryLinks(links.to(*self._where), stencil, self._site(part.core))
        graphs = Graphs(graph, asked)
        return Tile(part.nodes, len(core), graphs)

    def encode(self, batch: Batch, graphs: Graphs) -> Float[Tensor, "frame node latent"]:
        """v_enc of every distinct frame of the batch."""
        seen = batch.frames
        if self.channels > 1:
            flags = (
                torch.ones_like(seen) if batch.observed is None else batch.observed.to(seen.dtype)
            )
            seen = torch.cat([seen, flags], dim=-1)
        lifted = self.lift(seen)
        graph: NodeGraph = graphs.graph
        return self.encoder(
            lifted, batch.frame_time, graph.position, batch.present, graph.multipole
        )

    def decode(
        self, encoded: Float[Tensor, "frame node latent"], batch: Batch, graphs: Graphs
    ) -> Float[Tensor, "batch future query channel"]:
        """P'(v_dec), on top of the base where there is one."""
        past = batch.past[:, -self.num_frames :]
        present = None if batch.present is None else batch.present[past]
        return self._answer(encoded[past], present, batch, graphs)

    def forward(
        self, batch: Batch, graphs: Graphs, supervision: Supervision | None = None
    ) -> Output:
        """Encode and decode; frames that only the base looks at are not encoded."""
        newest = batch.newest(self.num_frames)
        encoded = self.encode(newest, graphs)
        present = None if newest.present is None else newest.present[newest.past]
        answer = self._answer(encoded[newest.past], present, batch, graphs)
        return Output(answer, self.reconstruct(encoded), newest)

    @torch.no_grad()
    def rows(
        self,
        windows: Windows,
        chosen: Int64[np.ndarray, " window"],
        nodes: Points,
        points: Int64[np.ndarray, " point"],
        augmentation: Augmentation,
    ) -> PointSamples:
        """Lessons for the residual: these windows at these of the nodes."""
        assert self.base is not None and self.climatology is not None  # the residual knows both
        queries = nodes.take(points)
        stencil = make_stencil(queries, nodes, self.base.covariance)
        stencil = replace(stencil, own=torch.from_numpy(points))  # of two in a place, this one
        stencil, near = stencil.around()
        stencil = stencil.to(*self._where)
        batch = windows.take(near).inputs(chosen)
        if augmentation.gaps:
            batch = hide_values(batch, augmentation.gaps, seed=int(chosen.sum()))
        regressors = self.base.regressors(batch, stencil).without_history(augmentation.silent)
        at_trained_leads, place = (
            self.base.at_trained_leads(regressors, batch),
            self._position(queries),
        )
        site = self.climatology.shown(queries, augmentation.as_unseen)
        features = self._point_features(
            regressors, at_trained_leads, batch, stencil, place.to(*self._where), site
        )
        features = PointFeatures(*(part.flatten(0, 1) for part in vars(features).values()))
        target, mask = windows.take(points).targets(chosen)
        mask = mask & on_leads(batch.lead)[:, :, None, None]
        told = (
            self.base.between(at_trained_leads, batch),
            self.base.scale(regressors, batch),
            target,
            mask,
        )
        return PointSamples(features, *(part.transpose(1, 2).flatten(0, 1) for part in told))

    def _answer(
        self,
        latent: Float[Tensor, "batch past node latent"],
        present: Bool[Tensor, "batch past node"] | None,
        batch: Batch,
        graphs: Graphs,
    ) -> Float[Tensor, "batch future query channel"]:
        links: QueryLinks = graphs.links
        asked = DecoderInput(
            latent=latent,
            present=present,
            lag=batch.on_host.lag[:, -self.num_frames :],
            lead=batch.on_host.lead,
            calendar=batch.future_time,
        )
        correction = self.project(self.decoder(asked, links.decoder))
        if self.base is None or links.stencil is None:
            return correction
        regressors = self.base.regressors(batch, links.stencil)
        at_trained_leads = self.base.at_trained_leads(regressors, batch)
        base, scale = self.base.between(at_trained_leads, batch), self.base.scale(regressors, batch)
        if self.residuals is not None:
            assert links.site is not None  # made with the links
            here = links.decoder.position, links.site
            advice = self.residuals(
                self._point_features(regressors, at_trained_leads, batch, links.stencil, *here)
            )
            between = between_leads(batch.lead, self.time_spec.horizon).expand(len(advice), -1, -1)
            asked_for = torch.einsum("btl,bqlc->btqc", between, advice)
            correction = correction + corrected(base, asked_for)
        return base + scale * correction

    def _point_features(
        self,
        regressors: Regressors,
        at_trained_leads: Float64[Tensor, "batch query knot channel"],
        batch: Batch,
        stencil: Stencil,
        place: Float[Tensor, "query m"],
        site: Float[Tensor, "*batch query statistic"],
    ) -> PointFeatures:
        assert self.base is not None
        white = self.base.whitened(regressors).to(batch.frames.dtype)
        turn = 2 * torch.pi * batch.issue_time
        time_spec = torch.cat([turn.sin(), turn.cos()], dim=-1)[:, None].expand(
            -1, white.shape[1], -1
        )
        sun = self.base.sun(batch, stencil)
        time = time_spec if sun is None else torch.cat([time_spec, sun], dim=-1)
        base = at_trained_leads[:, :, 1:].clamp(self.base.low, self.base.high).to(white.dtype)
        here = (part.expand(*regressors.kind.shape, -1) for part in (place, site))
        return PointFeatures(white, regressors.own, base, time, *here)

    def reconstruct(
        self, encoded: Float[Tensor, "frame node latent"]
    ) -> Float[Tensor, "frame node channel"]:
        """P'(v_enc): the inputs, as far as the encoding keeps them."""
        return self.project(encoded)

    def isolated(self, graphs: Graphs) -> int:
        graph: NodeGraph = graphs.graph
        links: QueryLinks = graphs.links
        return graph.multipole.isolated + links.decoder.neighbours.isolated

    def fit_closed_form(self, train: Windows, validation: Windows, nodes: Points) -> None:
        if self.base is not None:
            fit_linear(self.base, train, validation, nodes)
        if self.climatology is not None:
            self.climatology.fit(train)

    @property
    def _seen_by_encoder(self) -> Describe:
        return "sharp" if self.network.sharp else "nothing"

    @property
    def _where(self) -> tuple[torch.device, torch.dtype]:
        return self.lift.weight.device, self.lift.weight.dtype

    def _links(self, queries: Points, nodes: Points) -> Links:
        neighbours = within_radius(queries, nodes, self.radii.decoder, self.describe)
        return Links(
            self._position(queries), neighbours, torch.from_numpy(own_nodes(queries, nodes))
        )

    def _site(self, points: Points) -> Float[Tensor, "point statistic"] | None:
        return None if self.climatology is None else self.climatology.at(points).to(*self._where)

    def _position(self, points: Points) -> Float[Tensor, "point m"]:
        """Coordinates of order one: unit vectors on a sphere, on a plane the training's box."""
        return torch.from_numpy((points.embedded - self.centre) / self.span).float()


def _box(nodes: Points) -> tuple[np.ndarray, float]:
    if nodes.kind == "sphere":
        return np.zeros(3), 1.0
    low, high = nodes.embedded.min(0), nodes.embedded.max(0)
    return (low + high) / 2, max(float((high - low).max()) / 2, 1e-12)
