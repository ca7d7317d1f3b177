r"""STONet: one operator network from the past at scattered points to values anywhere, at any lead.

    z(x)   = modes of the past of x                                         `TemporalModes`
    v      = P [z; a(x, t0); sun; gaps]                              lift
    v      <- kernel sums on multipole levels                        encode `MultipoleLayer`
    b, tau = branch(v around x, state of x), trunk(lead, place, time)      decode `BranchTrunk`
    u(x,t) = anchor(x, t) + s(lead) (<b, tau> / sqrt(R) + c)         project

The anchor is a blend of the last and the daily value, or the linear forecast; s is its mean error
by lead. A point without a past has the kriged state of its neighbours. No weight belongs to
a node, so points may come and go. `stonet.models.paper` has the network as the paper prints it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from stonet.config import Config
from stonet.data.batch import Batch
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.data.windows import Windows, in_batches
from stonet.graph.halo import Adjacency, build_adjacency, subgraph
from stonet.graph.multipole import (
    assign_levels,
    build_graph,
    find_radii,
    levels_for,
)
from stonet.graph.neighbours import (
    Neighbours,
    edge_width,
    nearest_nodes,
    own_nodes,
    within_radius,
)
from stonet.linear.fit import field_covariance, fit_linear
from stonet.linear.history import History
from stonet.linear.imputation import error_variance
from stonet.linear.kriging import Covariance
from stonet.linear.kriging_graph import CANDIDATES, KrigingGraph, make_kriging_graph
from stonet.linear.local_polynomials import STENCIL_NODES, Stencil, make_stencil
from stonet.linear.regression import LinearForecast
from stonet.models.anchor import TERMS, BlendMoments, between_knots, blend_terms
from stonet.models.forecaster import (
    Encoding,
    Forecaster,
    Graphs,
    NodeGraph,
    Output,
    Supervision,
    Tile,
    narrow,
)
from stonet.models.point_inputs import (
    PlaceAxes,
    Sites,
    gaps,
    harmonics,
    harmonics_width,
    local_time,
    make_sites,
    sun_at_leads,
    sun_width,
)
from stonet.models.stonet_graphs import EncodedPast, NodesGraph, QueriesGraph
from stonet.operators.branch_trunk import BranchTrunk, keep
from stonet.operators.encoder import mlp
from stonet.operators.multipole_passes import MultipoleLayer
from stonet.operators.temporal_modes import TemporalModes

SMOOTH = 0.1  # `History.surprise` below which a field is smooth in time
FEW_SAMPLES = 100_000  # training windows times points, below which the linear forecast is needed
MANY_SAMPLES = 400_000  # from which on no regularisation is
SCALE_WINDOWS = 400  # windows from which the errors of the anchor are estimated
MIN_CHANGE = 1e-3  # unit of changes at least, in standard deviations: less is rounding
SCALE_BATCH = 16  # windows that are read together
SCALE_MARGIN = 1.25  # of the scale over the mean error, so that outputs are of order one


class STONetwork(Forecaster):
    """The spatio-temporal operator network, for any number of points.

    Args:
        config: sizes and choices; its graph section must hold resolved radii (`resolve_graph`).
        time_spec: step, past and horizon of the data.
        channels: of the field.
        nodes: the training points. They determine levels, radii and the axes of coordinates.
    """

    tiled = True
    batch = 16
    decay = 1e-4
    muon = True
    adam_only = ("decoder.trunk", "decoder.bias", "parametric")
    hidden_sensors = 0.1
    fallback = True
    skips_weights = True  # those of points without a past, where all points have one
    scale: Tensor
    blend: Tensor
    spacing: Tensor
    range: Tensor
    nugget: Tensor

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__()
        network, graph = config.network, config.graph
        self.nodes, self.time_spec, self.channels = nodes, time_spec, channels
        self.seed = graph.seed
        self.levels = assign_levels(nodes, graph.levels, graph.seed)
        self.radii = find_radii(nodes, self.levels, graph)
        self.anchor, self.dropout = network.anchor, network.dropout
        self.axes = PlaceAxes(nodes)
        self.history = History(time_spec, channels)
        width = self.history.width
        self.modes = TemporalModes(width, network.mode_floor)
        self.base = LinearForecast(time_spec, channels) if self.anchor == "linear" else None
        self.nearest = CANDIDATES if self.base is None else max(CANDIDATES, STENCIL_NODES + 1)
        knots = time_spec.horizon + 1
        self.register_buffer("scale", torch.ones(2, knots, channels))  # with, without a past
        blend = torch.zeros(knots, channels, TERMS)
        blend[..., 0] = 1.0
        self.register_buffer("blend", blend)  # starts as the newest value
        for name, value in zip(("spacing", "range", "nugget"), Covariance(1.0), strict=True):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float64))

        edge, sizes = edge_width("sharp", 0), (network.kernels, network.hidden)
        time, sun = harmonics_width(time_spec), sun_width(time_spec)
        self.parametric = mlp(self.axes.width + time, 2 * network.parametric, network.parametric)
        self.lift = nn.Linear(width + network.parametric + sun + 2 * channels, network.latent)  # P
        self.layers = nn.ModuleList(
            MultipoleLayer(graph.levels, edge, network.latent, *sizes)
            for _ in range(network.layers)
        )
        base = 0 if self.base is None else time_spec.horizon * channels
        self.decoder = BranchTrunk(
            edge=edge,
            latent=network.latent,
            state=network.latent + width + network.parametric + sun + base,
            place=self.axes.width,
            time=time,
            horizon=time_spec.horizon,
            channels=channels,
            rank=network.rank,
            kernels=network.kernels,
            hidden=network.hidden,
            heads=network.heads,
        )

    def candidates(self, config: Config, samples: int) -> tuple[Mapping[str, str | float], ...]:
        """Regularisation for few data; for very few, two kinds of it on the linear forecast.

        The anchor is not raced: what starts well wins a short race, and may overfit later.
        """
        if samples >= MANY_SAMPLES:
            return ()
        if samples >= FEW_SAMPLES:
            return ({"network.dropout": 0.3, "train.decay": 0.5, "train.lr": 3e-3},)
        names = "network.anchor", "network.dropout", "train.decay", "train.lr"
        values = ("linear", 0.3, 0.5, 1e-3), ("linear", 0.5, 1.0, 3e-3)
        return tuple(dict(zip(names, some, strict=True)) for some in values)

    @torch.no_grad()
    def suggested(self, train: Windows, nodes: Points) -> Mapping[str, str | float]:
        """The linear forecast as anchor where the past nearly determines what comes next.

        The network need not learn to the last digit then what a regression finds.
        """
        history = History(self.time_spec, self.channels)
        history.fit(train, len(nodes))
        return {"network.anchor": "linear"} if history.surprise < SMOOTH else {}

    @property
    def covariance(self) -> Covariance:
        """The spatial covariance of the field."""
        return Covariance(float(self.spacing), float(self.range), float(self.nugget))

    def node_graph(self, nodes: Points) -> NodesGraph:
        """New points join level 0; training points keep theirs; new points alone are divided."""
        level = levels_for(nodes, self.nodes, self.levels, self.seed)
        multipole = build_graph(nodes, level, self.radii, "sharp")
        return NodesGraph(multipole.to(*self._device_dtype), self._sites(nodes))

    def query_graph(self, nodes: Points, queries: Points) -> QueriesGraph:
        """The nodes around each query."""
        neighbours = within_radius(queries, nodes, self.radii.decoder, "sharp")
        near = nearest_nodes(queries, nodes, self.nearest)[1]
        own = torch.from_numpy(own_nodes(queries, nodes))
        return self._queries_graph(queries, nodes, neighbours, near, own)

    def adjacency(self, nodes: Points) -> Adjacency:
        """All edges of encoder and decoder, and the nearest nodes for kriging."""
        level = levels_for(nodes, self.nodes, self.levels, self.seed)
        near = nearest_nodes(nodes, nodes, self.nearest)[1]
        return build_adjacency(nodes, level, self.radii, near)

    def tile(self, adjacency: Adjacency, core: Int64[np.ndarray, " core"]) -> Tile:
        """The core with its halo, and their graphs."""
        part = subgraph(adjacency, core, len(self.layers), "sharp", "sharp")
        assert part.near is not None  # this model's adjacency has it
        own = torch.arange(len(core))
        nodes = NodesGraph(part.multipole.to(*self._device_dtype), self._sites(part.points))
        queries = self._queries_graph(part.core, part.points, part.decoder, part.near, own)
        return Tile(part.nodes, len(core), Graphs(nodes, queries))

    def encode(self, batch: Batch, graph: NodeGraph) -> EncodedPast:
        """v, z and the anchor at all nodes."""
        graph = narrow(graph, NodesGraph)
        history, known = self.history(batch, every_channel=True)
        present = None if known is None else known.any(-1).T  # node batch
        rows = history.permute(2, 0, 1, 3).flatten(2)  # node batch (lag channel)
        modes = self.modes(rows)
        if present is not None:
            modes = modes.masked_fill(~present[..., None], 0.0)
        inputs = [modes, *self._at_sites(batch, graph.sites), gaps(batch).to(modes.dtype)]
        latent = self.lift(torch.cat(inputs, dim=-1))
        for layer in self.layers:
            latent = layer(latent, graph.multipole, present)
        anchor = self._own_anchor(history).permute(2, 0, 1, 3).flatten(2)
        on_host = None if present is None else batch.on_host.known.any(-1).T.cpu()
        return EncodedPast(latent, modes, anchor, present, on_host)

    def forward(
        self, batch: Batch, graphs: Graphs, supervision: Supervision | None = None
    ) -> Output:
        """Encode and decode; in training with dropout."""
        kept = None
        if supervision is not None and self.dropout:
            place = narrow(graphs.queries, QueriesGraph).sites.place
            kept = keep(place, self.decoder.rank, self.dropout, supervision.seed)
        encoding = self.encode(batch, graphs.nodes)
        return Output(self._decode(encoding, batch, graphs, kept))

    def decode(
        self, encoding: Encoding, batch: Batch, graphs: Graphs
    ) -> Float[Tensor, "batch future query channel"]:
        """Anchor + s (<b, tau> / sqrt(R) + c) at the queries."""
        return self._decode(encoding, batch, graphs)

    def _decode(
        self,
        encoding: Encoding,
        batch: Batch,
        graphs: Graphs,
        kept: Float[Tensor, "query 1 rank"] | None = None,
    ) -> Float[Tensor, "batch future query channel"]:
        """The forecast, with some branch outputs dropped."""
        encoded, graph = narrow(encoding, EncodedPast), narrow(graphs.queries, QueriesGraph)
        parts = (encoded.latent, encoded.modes, encoded.anchor)
        at_queries = graph.kriging.at_queries(torch.cat(parts, dim=-1), encoded.present_on_host)
        latent, modes, anchor = at_queries.split([part.shape[-1] for part in parts], dim=-1)
        has_history = graph.kriging.has_history(encoded.present)
        at_leads = anchor.unflatten(-1, (-1, self.channels))  # query batch knot channel
        state = [latent, modes, *self._at_sites(batch, graph.sites)]
        scale = self._scale_of(has_history)
        if self.base is not None:
            assert graph.stencil is not None  # made with the query graph
            now = at_leads
            regressors = self.base.regressors(batch, graph.stencil)
            at_leads = self.base.at_trained_leads(regressors, batch).transpose(0, 1)
            at_leads = at_leads.clamp(self.base.lower, self.base.upper).to(now.dtype)
            change = (at_leads - now)[:, :, 1:] / self.scale[0, 1:].clamp(min=MIN_CHANGE)
            state.append(change.flatten(2))
        lead = batch.lead.to(latent.dtype)
        branch = self.decoder.branch(
            encoded.latent,
            torch.cat(state, dim=-1),
            graph.neighbours,
            encoded.present,
            has_history,
            kept,
        )
        time = harmonics(batch.future_time.to(latent.dtype))
        correction = self.decoder(branch, lead, graph.sites.place, time)
        forecast = between_knots(at_leads, lead) + between_knots(scale, lead) * correction
        return forecast.permute(1, 2, 0, 3)

    def isolated(self, graphs: Graphs) -> int:
        """Points without a neighbour within the radius, in encoder and decoder."""
        nodes, queries = narrow(graphs.nodes, NodesGraph), narrow(graphs.queries, QueriesGraph)
        return nodes.multipole.isolated + queries.neighbours.isolated

    @torch.no_grad()
    def fit_closed_form(self, train: Windows, validation: Windows, nodes: Points) -> None:
        """Estimate what needs no gradient: covariances, modes, the anchor and its errors."""
        for name, value in field_covariance(train, nodes)._asdict().items():
            getattr(self, name).fill_(value)
        if self.base is not None:
            fit_linear(self.base, train, validation, nodes)
        self.history.fit(train, len(nodes))
        covariance = self.history.covariance
        noise = float(self.history.usual_gaps) * float(error_variance(covariance).mean())
        self.modes.fit(self.history.mean, covariance, noise)
        sample = train.draw(SCALE_WINDOWS)
        if self.anchor == "blend":
            self._fit_blend(sample)
        self._fit_scale(sample, nodes)

    def _own_anchor(
        self, history: Float[Tensor, "batch lag node channel"]
    ) -> Float[Tensor, "batch knot node channel"]:
        """The anchor at the nodes, from their histories; for "linear", the newest value."""
        if self.anchor != "blend":
            return history[:, :1]
        terms = blend_terms(history, self.time_spec)
        return torch.einsum("kcp,pbknc->bknc", self.blend.to(history), terms)

    def _fit_blend(self, windows: Windows) -> None:
        """The coefficients of the blend, at points with a past."""
        moments = BlendMoments(self.time_spec.horizon, self.channels)
        for chosen in in_batches(windows, SCALE_BATCH):
            history, known = self.history(windows.inputs(chosen), every_channel=True)
            target, mask = windows.targets(chosen)
            usable = mask if known is None else mask & known.any(-1)[:, None, :, None]
            moments.add(blend_terms(history, self.time_spec), target, usable.to(target))
        self.blend.copy_(moments.solve())

    def _fit_scale(self, windows: Windows, nodes: Points) -> None:
        """The mean error of the anchor by lead, with and without a past; the range of the modes."""
        nobody = torch.full((len(nodes),), len(nodes))
        kriging = make_kriging_graph(nodes, nodes, self.covariance, own=nobody)
        stencil = None
        if self.base is not None:
            stencil = make_stencil(nodes, nodes, self.base.covariance).to(*self._device_dtype)
        sums = torch.zeros(2, *self.scale[0, 1:].shape, dtype=torch.float64)
        counts, histories = torch.zeros_like(sums), []
        for chosen in in_batches(windows, SCALE_BATCH):
            batch = windows.inputs(chosen)
            history, known = self.history(batch, every_channel=True)
            present = None if known is None else known.any(-1)
            rows = history.transpose(1, 2).flatten(2)
            histories.append(rows.flatten(0, 1) if present is None else rows[present])
            anchors = self._anchors(history, present, batch, kriging, stencil)
            target, mask = windows.targets(chosen)
            with_past = mask if present is None else mask & present[:, None, :, None]
            for kind, usable in enumerate((with_past, mask)):
                forecast = between_knots(anchors[kind], batch.lead).permute(1, 2, 0, 3)
                sums[kind] += ((forecast - target).abs() * usable).sum((0, 2))
                counts[kind] += usable.sum((0, 2))
        scale = (SCALE_MARGIN * sums / counts.clamp(min=1)).clamp(min=1e-6)
        self.scale[:, 1:] = scale.to(self.scale)
        self.scale[0, 0], self.scale[1, 0] = 0.0, self.scale[1, 1]  # the newest value has no error
        self.modes.fit_range(torch.cat(histories))

    def _anchors(
        self,
        history: Float[Tensor, "batch lag node channel"],
        present: Bool[Tensor, "batch node"] | None,
        batch: Batch,
        kriging: KrigingGraph,
        stencil: Stencil | None,
    ) -> tuple[Tensor, Tensor]:
        """The anchor at the nodes with their past, and as if they had none."""
        if self.base is not None and stencil is not None:
            regressors = self.base.regressors(batch, stencil)
            hidden = torch.ones_like(regressors.kind, dtype=torch.bool)
            pair = regressors, regressors.without_history(hidden)
            own, foreign = (
                self.base.at_trained_leads(r, batch).transpose(0, 1).to(history) for r in pair
            )
            return own, foreign
        at_leads = self._own_anchor(history).permute(2, 0, 1, 3)
        there = None if present is None else present.T
        foreign = kriging.at_queries(at_leads.flatten(2), there)
        return at_leads, foreign.view(at_leads.shape)

    def _at_sites(self, batch: Batch, sites: Sites) -> list[Float[Tensor, "point batch _"]]:
        """a(x, t0) and the sun, at every point and window."""
        time = local_time(batch, sites, self.time_spec)
        place = sites.place[:, None].expand(-1, time.shape[1], -1)
        parametric = self.parametric(torch.cat([place, time], dim=-1))
        sun = sun_at_leads(batch, sites, self.time_spec)
        return [parametric] if sun is None else [parametric, sun]

    def _scale_of(
        self, has_history: Bool[Tensor, "query batch_or_1"] | None
    ) -> Float[Tensor, "query_or_1 batch_or_1 knot channel"]:
        """S of every query, at the leads 0, 1, ..., horizon."""
        if has_history is None:
            return self.scale[0][None, None]
        return torch.where(has_history[..., None, None], self.scale[0], self.scale[1])

    def _queries_graph(
        self,
        queries: Points,
        nodes: Points,
        neighbours: Neighbours,
        near: Int64[np.ndarray, "query near"],
        own: Int64[Tensor, " query"],
    ) -> QueriesGraph:
        """The neighbours and the nearest nodes of the queries, on the device of the model."""
        here, index = self._device_dtype, torch.from_numpy(near[:, :CANDIDATES])
        kriging = make_kriging_graph(queries, nodes, self.covariance, index, own)
        stencil = None
        if self.base is not None:
            near = near[:, : STENCIL_NODES + 1]
            stencil = make_stencil(queries, nodes, self.base.covariance, near).to(*here)
        return QueriesGraph(neighbours.to(*here), kriging.to(*here), self._sites(queries), stencil)

    def _sites(self, points: Points) -> Sites:
        return make_sites(points, self.axes).to(*self._device_dtype)

    @property
    def _device_dtype(self) -> tuple[torch.device, torch.dtype]:
        return self.lift.weight.device, self.lift.weight.dtype
