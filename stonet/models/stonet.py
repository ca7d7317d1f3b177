r"""STONet: lift, encode, decode, project. The paper's figure.

v_t = P(u_t)                                lift      every frame by itself
v_enc_t = K_{a_t} v_t                       encode    graph kernels on multipole levels
v_dec(x, t) = G(v_enc)(x, t)                decode    branch x trunk at any x and t
u = base + scale (P'(v_dec) + a - g base)   project   base: closed form; a, g: the experts' advice
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor, nn

from stonet.config import Config
from stonet.data.geometry import Points
from stonet.data.resampling import between_leads, on_leads
from stonet.data.time_spec import Clock
from stonet.data.windows import Batch, Windows, hide_values
from stonet.errors import UsageError
from stonet.graph.halo import Web, cut_out, weave
from stonet.graph.multipole import (
    MultipoleGraph,
    assign_levels,
    build_graph,
    find_radii,
    levels_for,
)
from stonet.graph.neighbours import Describe, edge_width, own_nodes, within_radius
from stonet.linear.fit import fit_linear
from stonet.linear.local_polynomials import Stencil, make_stencil, seen_from
from stonet.linear.regression import LinearBase, Look
from stonet.models.forecaster import Forecaster, Lesson, Output, Scene, Tile
from stonet.models.residual_mlp import Expert, Experts, Guise, Rows, Sight, corrected
from stonet.models.site_climatology import Portraits
from stonet.operators.branch import Links
from stonet.operators.decoder import Question, Sizes, build_decoder
from stonet.operators.encoder import MultipoleEncoder


@dataclass(frozen=True)
class NodeGraph:
    """The encoder's side of a scene."""

    multipole: MultipoleGraph
    position: Float[Tensor, "node m"]


@dataclass(frozen=True)
class QueryLinks:
    """The decoder's side of a scene."""

    decoder: Links
    stencil: Stencil | None
    portrait: Float[Tensor, "query trait"] | None = None


class STONetwork(Forecaster):
    """The spatio-temporal operator network, for any number of points.

    Args:
        config: sizes and choices; its graph section must hold resolved radii (`resolve_graph`).
        clock: the data's step, past and horizon.
        channels: of the field.
        nodes: the training points. They fix the levels, the radii and the scale of coordinates,
            and have portraits, but no weight belongs to any of them (save in the "fixed" decoder).
    """

    outage = 0.1
    run = 4

    def __init__(self, config: Config, clock: Clock, channels: int, nodes: Points) -> None:
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
        features = clock.features + int(network.window_time)
        flags = channels if channels > 1 else 0  # which channels of a point are there
        self.lift = nn.Linear(channels + flags, network.latent)  # P
        self.encoder = MultipoleEncoder(dimension, features, graph.levels, network)
        edge = edge_width(self.describe, dimension)
        self.base = None if network.base == "none" else LinearBase(clock, channels, network.base)
        self.experts, self.portraits, self.clock = None, None, clock
        if self.base is not None and network.expert:
            features = 2 * clock.features + self.base.suns
            self.portraits = Portraits(clock, channels, nodes)
            size = (self.base.width, features, network.expert, clock, channels)
            here = (self._position(nodes), self.portraits.traits)
            self.experts = Experts([Expert(*size, *here) for _ in range(network.experts or 1)])
        self.sees = min(network.sees or clock.past, clock.past)
        sizes = Sizes(dimension, clock.features, edge, self.sees, clock.horizon, len(nodes))
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
            stencil = make_stencil(queries, nodes, self.base.texture).to(*self._where)
        return QueryLinks(decoder.to(*self._where), stencil, self._portrait(queries))

    def web(self, nodes: Points) -> Web:
        if not self.tiled:
            return super().web(nodes)  # which refuses
        level = levels_for(nodes, self.nodes, self.levels, self.seed)
        near = None if self.base is None else seen_from(nodes, nodes)
        return weave(nodes, level, self.radii, near)

    def tile(self, web: Web, core: Int64[np.ndarray, " core"]) -> Tile:
        part = cut_out(web, core, self.network.layers, self._seen_by_encoder, self.describe)
        own = torch.arange(len(core))
        links = Links(self._position(part.core), part.decoder, own)
        stencil = None
        if self.base is not None:
            stencil = make_stencil(part.core, part.points, self.base.texture, part.near)
            stencil = replace(stencil, own=own).to(*self._where)
        position = self._position(part.points).to(*self._where)
        graph = NodeGraph(part.multipole.to(*self._where), position)
        asked = QueryLinks(links.to(*self._where), stencil, self._portrait(part.core))
        scene = Scene(graph, asked)
        return Tile(part.nodes, len(core), scene)

    def encode(self, batch: Batch, scene: Scene) -> Float[Tensor, "frame node latent"]:
        """v_enc of every distinct frame of the batch."""
        seen = batch.frames
        if self.channels > 1:
            flags = (
                torch.ones_like(seen) if batch.observed is None else batch.observed.to(seen.dtype)
            )
            seen = torch.cat([seen, flags], dim=-1)
        lifted = self.lift(seen)
        graph: NodeGraph = scene.graph
        return self.encoder(
            lifted, batch.frame_time, graph.position, batch.present, graph.multipole
        )

    def decode(
        self, encoded: Float[Tensor, "frame node latent"], batch: Batch, scene: Scene
    ) -> Float[Tensor, "batch future query channel"]:
        """P'(v_dec), on top of the base where there is one."""
        past = batch.past[:, -self.sees :]
        present = None if batch.present is None else batch.present[past]
        return self._answer(encoded[past], present, batch, scene)

    def forward(self, batch: Batch, scene: Scene, lesson: Lesson | None = None) -> Output:
        """Encode and decode; frames that only the base looks at are not encoded."""
        newest = batch.newest(self.sees)
        encoded = self.encode(newest, scene)
        present = None if newest.present is None else newest.present[newest.past]
        answer = self._answer(encoded[newest.past], present, batch, scene)
        return Output(answer, self.reconstruct(encoded), newest)

    @torch.no_grad()
    def rows(
        self,
        windows: Windows,
        chosen: Int64[np.ndarray, " window"],
        nodes: Points,
        points: Int64[np.ndarray, " point"],
        guise: Guise,
    ) -> Rows:
        """Lessons for the expert: these windows at these of the nodes."""
        assert self.base is not None and self.portraits is not None  # the expert knows both
        queries = nodes.take(points)
        stencil = make_stencil(queries, nodes, self.base.texture)
        stencil = replace(stencil, own=torch.from_numpy(points))  # of two in a place, this one
        stencil, near = stencil.around()
        stencil = stencil.to(*self._where)
        batch = windows.take(near).inputs(chosen)
        if guise.gaps:
            batch = hide_values(batch, guise.gaps, seed=int(chosen.sum()))
        look = self.base.look(batch, stencil).silenced(guise.silent)
        knots, place = self.base.knots(look, batch), self._position(queries)
        portrait = self.portraits.shown(queries, guise.strange)
        sight = self._sight(look, knots, batch, stencil, place.to(*self._where), portrait)
        sight = Sight(*(part.flatten(0, 1) for part in vars(sight).values()))
        target, mask = windows.take(points).targets(chosen)
        mask = mask & on_leads(batch.lead)[:, :, None, None]
        told = (self.base.between(knots, batch), self.base.scale(look, batch), target, mask)
        return Rows(sight, *(part.transpose(1, 2).flatten(0, 1) for part in told))

    def _answer(
        self,
        latent: Float[Tensor, "batch past node latent"],
        present: Bool[Tensor, "batch past node"] | None,
        batch: Batch,
        scene: Scene,
    ) -> Float[Tensor, "batch future query channel"]:
        links: QueryLinks = scene.links
        asked = Question(
            latent=latent,
            present=present,
            lag=batch.at_hand.lag[:, -self.sees :],
            lead=batch.at_hand.lead,
            calendar=batch.future_time,
        )
        correction = self.project(self.decoder(asked, links.decoder))
        if self.base is None or links.stencil is None:
            return correction
        look = self.base.look(batch, links.stencil)
        knots = self.base.knots(look, batch)
        base, scale = self.base.between(knots, batch), self.base.scale(look, batch)
        if self.experts is not None:
            assert links.portrait is not None  # made with the links
            here = links.decoder.position, links.portrait
            advice = self.experts(self._sight(look, knots, batch, links.stencil, *here))
            between = between_leads(batch.lead, self.clock.horizon).expand(len(advice), -1, -1)
            asked_for = torch.einsum("btl,bqlc->btqc", between, advice)
            correction = correction + corrected(base, asked_for)
        return base + scale * correction

    def _sight(
        self,
        look: Look,
        knots: Float64[Tensor, "batch query knot channel"],
        batch: Batch,
        stencil: Stencil,
        place: Float[Tensor, "query m"],
        portrait: Float[Tensor, "*batch query trait"],
    ) -> Sight:
        assert self.base is not None
        white = self.base.whitened(look).to(batch.frames.dtype)
        turn = 2 * torch.pi * batch.issue_time
        clock = torch.cat([turn.sin(), turn.cos()], dim=-1)[:, None].expand(-1, white.shape[1], -1)
        sun = self.base.sun(batch, stencil)
        time = clock if sun is None else torch.cat([clock, sun], dim=-1)
        base = knots[:, :, 1:].clamp(self.base.low, self.base.high).to(white.dtype)
        here = (part.expand(*look.kind.shape, -1) for part in (place, portrait))
        return Sight(white, look.own, base, time, *here)

    def reconstruct(
        self, encoded: Float[Tensor, "frame node latent"]
    ) -> Float[Tensor, "frame node channel"]:
        """P'(v_enc): the inputs, as far as the encoding keeps them."""
        return self.project(encoded)

    def isolated(self, scene: Scene) -> int:
        graph: NodeGraph = scene.graph
        links: QueryLinks = scene.links
        return graph.multipole.isolated + links.decoder.neighbours.isolated

    def fit_closed_form(self, train: Windows, validation: Windows, nodes: Points) -> None:
        if self.base is not None:
            fit_linear(self.base, train, validation, nodes)
        if self.portraits is not None:
            self.portraits.fit(train)

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

    def _portrait(self, points: Points) -> Float[Tensor, "point trait"] | None:
        return None if self.portraits is None else self.portraits.at(points).to(*self._where)

    def _position(self, points: Points) -> Float[Tensor, "point m"]:
        """Coordinates of order one: unit vectors on a sphere, on a plane the training's box."""
        return torch.from_numpy((points.embedded - self.centre) / self.span).float()


def _box(nodes: Points) -> tuple[np.ndarray, float]:
    if nodes.kind == "sphere":
        return np.zeros(3), 1.0
    low, high = nodes.embedded.min(0), nodes.embedded.max(0)
    return (low + high) / 2, max(float((high - low).max()) / 2, 1e-12)
