r"""The paper's network and nothing else: lift, encode, decode, project, reconstruct.

    v_t = P u_t                                                    lift, each frame by itself
    v_enc_t(x) = K_{a_t} v_t (x)                                   graph kernels on L levels
    v_dec_k(x, t) = sum_i c_i^k AGG_ik(x, t) sigma(eta_k [x, t] + zeta_k)
    AGG_ik(x, t) = sigma(1/|N(x)| sum_{x_j in N(x), t_j} xi_i^k(x - x_j, t - t_j) . v_enc_{t_j}(x_j)
                         + theta_i^k)
    u(x, t) = P' v_dec(x, t),     loss: MAE of u + alpha MAE of P' v_enc

`docs/explanation/paper.md` lists every choice that the paper leaves open and every deviation. The
settings are those of the section `paper`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from stonet.config import Config, KernelConfig, PaperConfig
from stonet.data.batch import Batch
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.errors import UsageError
from stonet.graph.halo import Adjacency, build_adjacency, subgraph
from stonet.graph.multipole import (
    MultipoleGraph,
    assign_levels,
    build_graph,
    find_radii,
    levels_for,
)
from stonet.graph.neighbours import Describe, Neighbours, edge_width, own_nodes, within_radius
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
from stonet.operators.branch import DecoderGraph
from stonet.operators.decoder import DecoderInput, Sizes
from stonet.operators.decoder_variants import build_decoder
from stonet.operators.encoder import MultipoleEncoder, encoder_edges


@dataclass(frozen=True)
class PaperNodes(NodeGraph):
    """The nodes as the encoder needs them.

    Args:
        multipole: edges of the encoder.
        position: embedded coordinates.
    """

    multipole: MultipoleGraph
    position: Float[Tensor, "node m"]


@dataclass(frozen=True)
class PaperQueries(QueryGraph):
    """The queries as the decoder needs them.

    Args:
        decoder: links from nodes to queries.
    """

    decoder: DecoderGraph


class FrameNetwork(Forecaster):
    """A network that encodes each frame on multipole levels and decodes around any point.

    Args:
        config: its graph section must hold resolved radii (`resolve_graph`).
        kernels: sizes and form of the graph kernels.
        time_spec: step, past and horizon of the data.
        channels: of the field.
        nodes: the training points. They determine levels, radii and the unit of coordinates, but
            no weight belongs to a node (except in the "fixed" decoder).
    """

    tiled = True

    def __init__(
        self,
        config: Config,
        kernels: KernelConfig,
        time_spec: TimeSpec,
        channels: int,
        nodes: Points,
    ) -> None:
        super().__init__()
        graph = config.graph
        self.nodes, self.kernels, self.channels, self.time_spec = (
            nodes,
            kernels,
            channels,
            time_spec,
        )
        self.seed = graph.seed
        self.levels = assign_levels(nodes, graph.levels, graph.seed)
        self.radii = find_radii(nodes, self.levels, graph)
        self.centre, self.span = _box(nodes)
        self.encoder_edges = encoder_edges(kernels)
        forms: dict[str, Describe] = {"radius": "offset", "difference": "difference"}
        self.decoder_edges: Describe = forms.get(kernels.edges, "sharp")

    def node_graph(self, nodes: Points) -> PaperNodes:
        """New points join level 0; training points keep theirs; only new points: a new partition.

        Raises:
            UsageError: if the decoder is "fixed" and these are not the training points.
        """
        if not self.inductive and nodes != self.nodes:
            raise UsageError(
                f"The 'fixed' decoder has weights for its {len(self.nodes)} training points, "
                "in their order, and cannot take others. Train with paper.decoder=revised."
            )
        level = levels_for(nodes, self.nodes, self.levels, self.seed)
        multipole = build_graph(nodes, level, self.radii, self.encoder_edges)
        return self._nodes(nodes, multipole)

    def query_graph(self, nodes: Points, queries: Points) -> PaperQueries:
        """The neighbouring nodes of each query."""
        return PaperQueries(self._decoder_graph(queries, nodes).to(*self._device_dtype))

    def adjacency(self, nodes: Points) -> Adjacency:
        """All edges of encoder and decoder."""
        if not self.tiled:
            return super().adjacency(nodes)  # raises
        level = levels_for(nodes, self.nodes, self.levels, self.seed)
        return build_adjacency(nodes, level, self.radii, self._near(nodes))

    def tile(self, adjacency: Adjacency, core: Int64[np.ndarray, " core"]) -> Tile:
        """The core with its halo, and their graphs."""
        part = subgraph(
            adjacency, core, self.kernels.layers, self.encoder_edges, self.decoder_edges
        )
        decoder = DecoderGraph(
            self._position(part.core), self._in_span(part.decoder), torch.arange(len(core))
        )
        queries = self._tile_queries(decoder, part.core, part.points, part.near)
        graphs = Graphs(self._nodes(part.points, part.multipole), queries)
        return Tile(part.nodes, len(core), graphs)

    def isolated(self, graphs: Graphs) -> int:
        """Points without a neighbour within the radius, in encoder and decoder."""
        encoder, queries = narrow(graphs.nodes, PaperNodes), narrow(graphs.queries, PaperQueries)
        return encoder.multipole.isolated + queries.decoder.neighbours.isolated

    def _near(self, nodes: Points) -> Int64[np.ndarray, "node near"] | None:
        """Nodes that a forecast at a node reads beyond its edges; none here."""
        return None

    def _tile_queries(
        self,
        decoder: DecoderGraph,
        core: Points,
        points: Points,
        near: Int64[np.ndarray, "core near"] | None,
    ) -> PaperQueries:
        """The queries of a tile, from its decoder graph."""
        return PaperQueries(decoder.to(*self._device_dtype))

    def _nodes(self, nodes: Points, multipole: MultipoleGraph) -> PaperNodes:
        position = self._position(nodes).to(*self._device_dtype)
        return PaperNodes(multipole.to(*self._device_dtype), position)

    def _decoder_graph(self, queries: Points, nodes: Points) -> DecoderGraph:
        """The nodes within the decoder's radius of each query."""
        neighbours = within_radius(queries, nodes, self.radii.decoder, self.decoder_edges)
        own = torch.from_numpy(own_nodes(queries, nodes))
        return DecoderGraph(self._position(queries), self._in_span(neighbours), own)

    def _in_span(self, neighbours: Neighbours) -> Neighbours:
        """Differences in the unit of the network's coordinates; other features as they are."""
        if self.decoder_edges != "difference":
            return neighbours
        blocks = (replace(b, features=b.features / self.span) for b in neighbours.blocks)
        return replace(neighbours, blocks=tuple(blocks))

    def _position(self, points: Points) -> Float[Tensor, "point m"]:
        """Coordinates of order one: unit vectors on a sphere; on a plane relative to `_box`."""
        return torch.from_numpy((points.embedded - self.centre) / self.span).float()

    @property
    def _device_dtype(self) -> tuple[torch.device, torch.dtype]:
        weight = next(self.parameters())
        return weight.device, weight.dtype


class PaperNetwork(FrameNetwork):
    """The paper's network, for any number of points.

    Args:
        config: its section `paper`; the graph section must hold resolved radii.
        time_spec: step, past and horizon of the data.
        channels: of the field.
        nodes: the training points.
    """

    lr = 2e-3
    alpha = 0.5
    schedule = "step"

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        paper = config.paper
        super().__init__(config, paper, time_spec, channels, nodes)
        self.paper = paper
        self.inductive = paper.decoder != "fixed"
        self.tiled = paper.decoder == "revised"
        self.frame_wise = not paper.window_time
        self.skips_weights = paper.terms > 1 or paper.kernel == "diag"
        self.num_frames = min(paper.frames or time_spec.past, time_spec.past)
        dimension = nodes.geometry.dimension
        features = time_spec.features + int(paper.window_time)
        self.lift = nn.Linear(channels * (1 + paper.flags), paper.latent)  # P
        self.encoder = MultipoleEncoder(dimension, features, config.graph.levels, paper)
        self.decoder = build_decoder(self._sizes(time_spec, paper), paper)
        self.project = nn.Linear(paper.latent, channels)  # P'
        nn.init.zeros_(self.project.bias)

    def _sizes(self, time_spec: TimeSpec, paper: PaperConfig) -> Sizes:
        """What the decoder's sizes follow from."""
        dimension = self.nodes.geometry.dimension
        return Sizes(
            dimension=dimension,
            calendar=time_spec.features,
            edge=edge_width(self.decoder_edges, dimension),
            past=self.num_frames,
            horizon=time_spec.horizon,
            nodes=len(self.nodes),
            rates=tuple(time_spec.step / period for period in time_spec.periods),
        )

    def query_graph(self, nodes: Points, queries: Points) -> PaperQueries:
        """The neighbouring nodes of each query, and of each node for the ODE decoder."""
        graph = self._decoder_graph(queries, nodes)
        if self.paper.decoder == "ode":
            among = graph if queries is nodes else self._decoder_graph(nodes, nodes)
            graph = replace(graph, among_nodes=among)
        return PaperQueries(graph.to(*self._device_dtype))

    def encode(self, batch: Batch, graph: NodeGraph) -> FrameEncoding:
        """v_enc of every frame; with the position in the window, of every window's own frames."""
        return self._encode(self._unshared(batch), graph)

    def decode(
        self, encoding: Encoding, batch: Batch, graphs: Graphs
    ) -> Float[Tensor, "batch future query channel"]:
        """P' v_dec at the queries of the graphs and the leads of the batch."""
        return self._decode(encoding, self._unshared(batch), graphs, batch.on_host)

    def forward(
        self, batch: Batch, graphs: Graphs, supervision: Supervision | None = None
    ) -> Output:
        """Encode and decode; frames before the newest ones are not encoded."""
        newest = batch.newest(self.num_frames)
        encoded = self._unshared(newest)
        encoding = self._encode(encoded, graphs.nodes)
        forecast = self._decode(encoding, encoded, graphs, batch.on_host)
        return Output(forecast, self.reconstruct(encoding), encoded)

    def _encode(self, batch: Batch, graph: NodeGraph) -> FrameEncoding:
        """v_enc of the frames of a batch."""
        graph, values = narrow(graph, PaperNodes), batch.frames
        if self.paper.flags:
            values = torch.cat([values, batch.seen.to(values.dtype)], dim=-1)
        latent = self.encoder(
            self.lift(values), batch.frame_time, graph.position, batch.present, graph.multipole
        )
        return FrameEncoding(latent)

    def _decode(
        self, encoding: Encoding, batch: Batch, graphs: Graphs, host: Batch
    ) -> Float[Tensor, "batch future query channel"]:
        """The forecast from the encoded frames; the times are read in the host's memory."""
        past = batch.past[:, -self.num_frames :]
        inputs = DecoderInput(
            latent=narrow(encoding, FrameEncoding).latent[past],
            present=None if batch.present is None else batch.present[past],
            lag=host.lag[:, -self.num_frames :],
            lead=host.lead,
            calendar=batch.future_time,
            issue=batch.issue_time,
        )
        return self.project(self.decoder(inputs, narrow(graphs.queries, PaperQueries).decoder))

    def reconstruct(self, encoding: Encoding) -> Float[Tensor, "frame node channel"]:
        """P' v_enc: the inputs as reconstructed from the encoding."""
        return self.project(narrow(encoding, FrameEncoding).latent)

    def _unshared(self, batch: Batch) -> Batch:
        """The batch with a frame for each window and input, if these see their position in it."""
        if not self.paper.window_time:
            return batch
        rows, shape = batch.past.flatten(), batch.past.shape
        place = (batch.lag / self.time_spec.horizon).expand(shape).reshape(-1, 1)
        return replace(
            batch,
            frames=batch.frames[rows],
            observed=None if batch.observed is None else batch.observed[rows],
            frame_time=torch.cat([batch.frame_time[rows], place], dim=-1),
            past=torch.arange(len(rows), device=rows.device).view(shape),
            host=None,
        )


def _box(nodes: Points) -> tuple[np.ndarray, float]:
    """Centre and half the longest side of the box around the nodes; (0, 1) on a sphere."""
    if nodes.kind == "sphere":
        return np.zeros(3), 1.0
    low, high = nodes.embedded.min(0), nodes.embedded.max(0)
    return (low + high) / 2, max(float((high - low).max()) / 2, 1e-12)
