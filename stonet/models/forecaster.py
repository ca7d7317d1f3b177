"""Forecaster: the interface of every model, from persistence to STONet.

A forecast has three steps, each with a named result:

    node_graph(nodes)            NodeGraph     depends on the observed points only
    query_graph(nodes, queries)  QueryGraph    depends on the forecast points as well
    encode(batch, node graph)    Encoding      depends on the past, not on the queries
    decode(encoding, ...)        Tensor        the forecast at the queries and leads

Each model subclasses `NodeGraph`, `QueryGraph` and `Encoding` as it needs them. Nobody else reads
their contents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from stonet.config import TRAIN_DEFAULTS, Config
from stonet.data.batch import Batch
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.data.windows import Windows
from stonet.errors import UsageError
from stonet.graph.halo import Adjacency


class NodeGraph:
    """What a model derives from the nodes, where values are observed; nothing in this base."""


class QueryGraph:
    """What a model derives from the queries, where values are forecast; nothing in this base."""


class Encoding:
    """What a model derives from the past of a batch; nothing in this base."""


@dataclass(frozen=True)
class FrameEncoding(Encoding):
    """An encoding with one row for each frame of the batch.

    Args:
        latent: the encoded frames.
    """

    latent: Float[Tensor, "frame node latent"]


@dataclass(frozen=True)
class Graphs:
    """The graphs of one forecast task, built by `Forecaster.graphs`.

    Args:
        nodes: among the observed points.
        queries: from observed points to points of the forecast.
    """

    nodes: NodeGraph
    queries: QueryGraph


@dataclass(frozen=True)
class Tile:
    """A subset of the nodes with graphs that forecast its first nodes, the core.

    The other nodes of a tile are its halo: everything that the forecast at the core depends on.

    Args:
        nodes: positions, the core first; None: all nodes.
        core: number of nodes in the core.
        graphs: among these nodes.
    """

    nodes: Int64[np.ndarray, " node"] | None
    core: int
    graphs: Graphs


@dataclass(frozen=True)
class Output:
    """The result of a forward pass, in normalised units.

    Args:
        forecast: at the queries.
        reconstruction: of the inputs.
        inputs: the reconstructed inputs, if not the complete batch.
    """

    forecast: Float[Tensor, "batch future query channel"]
    reconstruction: Float[Tensor, "frame node channel"] | None = None
    inputs: Batch | None = None


@dataclass(frozen=True)
class Supervision:
    """What a model is told in training only: targets for teacher forcing, and random draws.

    Args:
        target: values after the issue time.
        mask: of the target.
        progress: completed share of the training.
        teacher_forcing_draws: uniform in [0, 1), keyed by (seed, step).
        seed: of the step's other random draws, the same in every process and thread.
    """

    target: Float[Tensor, "batch future node channel"]
    mask: Bool[Tensor, "batch future node channel"]
    progress: float
    teacher_forcing_draws: Float[Tensor, " future"]
    seed: int = 0


class Forecaster(nn.Module, ABC):
    """Past frames at some points in, values at any query points and times out.

    Every model guarantees, and `stonet.models.contract` checks, that

    - the windows of a batch do not influence each other,
    - no value after the issue time is used,
    - the order of the nodes does not matter, if the model is inductive,
    - equal arguments give equal results, also after saving and loading.

    Missing values are 0 in `batch.frames` and False in `batch.observed`; they must not influence
    the forecast. Several threads call a model at once, each with its own windows: `forward` must
    not store anything on the model.
    """

    inductive: bool = True  # can forecast at points that were not in training
    lr: float = 1e-2  # default learning rate
    decay: float = 0.0  # default weight decay
    muon: bool = False  # whether Muon updates its matrices, and AdamW the other weights
    adam_only: tuple[str, ...] = ()  # beginnings of names of weights that Muon leaves to AdamW
    alpha: float = TRAIN_DEFAULTS.alpha  # weight of the reconstruction loss
    batch: int = TRAIN_DEFAULTS.batch  # windows in a step
    schedule: Literal["cosine", "step", "constant"] = TRAIN_DEFAULTS.schedule  # of the rate
    skips_weights: bool = False  # a step may leave weights without a gradient
    hidden_sensors: float = 0.0  # share of sensors hidden in a training step
    consecutive: int = 1  # consecutive windows in a batch; pays if windows share their frames
    tiled: bool = False  # a forecast depends on nearby nodes only: `adjacency` and `tile` exist
    fallback: bool = False  # default of train.fallback
    frame_wise: bool = False  # `encode` gives a FrameEncoding, each row from its frame alone

    def node_graph(self, nodes: Points) -> NodeGraph:
        """The graph of the observed points; empty unless a model overrides it.

        Args:
            nodes: the observed points.
        """
        return NodeGraph()

    @abstractmethod
    def query_graph(self, nodes: Points, queries: Points) -> QueryGraph:
        """The graph that connects the forecast points to the observed ones.

        Args:
            nodes: the observed points.
            queries: points of the forecast.
        """

    def graphs(self, nodes: Points, queries: Points | None = None) -> Graphs:
        """Both graphs.

        Args:
            nodes: points with observed values, in the order of the values.
            queries: points of the forecast; None: the nodes.
        """
        queries = nodes if queries is None else queries
        return Graphs(self.node_graph(nodes), self.query_graph(nodes, queries))

    def encode(self, batch: Batch, graph: NodeGraph) -> Encoding:
        """The encoded past; empty for models that read the past in `decode`.

        Args:
            batch: inputs.
            graph: of the nodes.
        """
        return Encoding()

    @abstractmethod
    def decode(
        self, encoding: Encoding, batch: Batch, graphs: Graphs
    ) -> Float[Tensor, "batch future query channel"]:
        """The forecast at the queries of the graphs and the leads of the batch.

        Args:
            encoding: by `encode`, of the same batch.
            batch: gives the leads.
            graphs: of nodes and queries.
        """

    def reconstruct(self, encoding: Encoding) -> Float[Tensor, "frame node channel"] | None:
        """The inputs reconstructed from the encoding; None for models without such a term.

        Args:
            encoding: by `encode`.
        """
        return None

    def forward(
        self, batch: Batch, graphs: Graphs, supervision: Supervision | None = None
    ) -> Output:
        """Encode and decode.

        Args:
            batch: windows of normalised values.
            graphs: of the nodes of the batch and of the queries, built by this model.
            supervision: targets and draws, only in training; most models ignore them.
        """
        encoding = self.encode(batch, graphs.nodes)
        return Output(self.decode(encoding, batch, graphs), self.reconstruct(encoding))

    def adjacency(self, nodes: Points) -> Adjacency:
        """All dependencies between the nodes, for `tile`.

        Args:
            nodes: the training points.

        Raises:
            UsageError: if the model is not `tiled`.
        """
        raise self._not_tiled()

    def tile(self, adjacency: Adjacency, core: Int64[np.ndarray, " core"]) -> Tile:
        """The core with its halo: the forecast at the core equals that of all nodes together.

        Args:
            adjacency: of all nodes.
            core: positions of the nodes that are forecast.

        Raises:
            UsageError: if the model is not `tiled`.
        """
        raise self._not_tiled()

    def _not_tiled(self) -> UsageError:
        return UsageError(
            f"{type(self).__name__} with these settings needs all points at once and cannot be "
            "trained in tiles. Leave train.tile out, or use fewer points (--points)."
        )

    def isolated(self, graphs: Graphs) -> int:
        """Number of points without a neighbour within the radius; they use the nearest one.

        Args:
            graphs: of nodes and queries.
        """
        return 0

    def candidates(self, config: Config, samples: int) -> Sequence[Mapping[str, str | int | float]]:
        """Settings among which a race chooses; see `stonet.training.race`.

        Args:
            config: the configuration that they change.
            samples: training windows times points.

        Returns:
            dictionaries {"section.key": value} of the sections network, baseline, augmentation and
            train; the first is used where there is no race. None by default.
        """
        return ()

    def suggested(self, train: Windows, nodes: Points) -> Mapping[str, str | int | float]:
        """Settings that follow from the data without a race, as in `candidates`; none by default.

        Args:
            train: training windows.
            nodes: their points.
        """
        return {}

    def adopt_closed_form(self, other: Forecaster) -> bool:
        """Copy what `fit_closed_form` has fitted in another model, if it would be the same here.

        Args:
            other: a fitted model of the same class.

        Returns:
            Whether it was copied; never by default.
        """
        return False

    def fit_closed_form(self, train: Windows, validation: Windows, nodes: Points) -> None:
        """Fit everything that needs no gradient, before training starts; nothing by default.

        Args:
            train: windows of the training part.
            validation: windows of the validation part.
            nodes: the training points.
        """
        return None


Builder = Callable[[Config, TimeSpec, int, Points], Forecaster]  # see `STONetwork` for arguments
Part = TypeVar("Part")


def narrow(part: object, expected: type[Part]) -> Part:
    """The same object, known to be of a model's own class.

    Args:
        part: a graph or an encoding.
        expected: the model's own class.

    Raises:
        TypeError: if another model made it.
    """
    if not isinstance(part, expected):
        raise TypeError(
            f"Expected {expected.__name__}, got {type(part).__name__}: graphs and encodings must "
            "come from the model that uses them."
        )
    return part


def masked_mae(
    forecast: Float[Tensor, "*shape"],
    truth: Float[Tensor, "*shape"],
    mask: Bool[Tensor, "*shape"],
    weight: Float[Tensor, "..."] | float = 1.0,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The weighted sum of |error| over observed values, and the sum of weights.

    Args:
        forecast: of the model.
        truth: of any value where the mask is False.
        mask: where the truth was observed.
        weight: of each error.
    """
    counted = mask * weight
    error = torch.where(mask, forecast - truth, 0.0).abs()
    return (error * counted).sum(), counted.sum()
