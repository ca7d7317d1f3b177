"""The graphs of STONet, and the past as it encodes it."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from stonet.graph.multipole import MultipoleGraph
from stonet.graph.neighbours import Neighbours
from stonet.linear.kriging_graph import KrigingGraph
from stonet.linear.local_polynomials import Stencil
from stonet.models.forecaster import Encoding, NodeGraph, QueryGraph
from stonet.models.point_inputs import Sites


@dataclass(frozen=True)
class NodesGraph(NodeGraph):
    """The nodes as the encoder needs them.

    Args:
        multipole: edges of the encoder.
        sites: place and direction of each node.
    """

    multipole: MultipoleGraph
    sites: Sites


@dataclass(frozen=True)
class QueriesGraph(QueryGraph):
    """The queries as the decoder needs them.

    Args:
        neighbours: nodes around each query.
        kriging: weights for queries without a past.
        sites: place and direction of each query.
        stencil: of the linear forecast, where it is the anchor.
    """

    neighbours: Neighbours
    kriging: KrigingGraph
    sites: Sites
    stencil: Stencil | None


@dataclass(frozen=True)
class EncodedPast(Encoding):
    """The nodes after the encoder.

    Args:
        latent: v.
        modes: z.
        anchor: the simple forecast that is corrected.
        present: None: all nodes have a past.
        present_on_host: the same in the host's memory.
    """

    latent: Float[Tensor, "node batch latent"]
    modes: Float[Tensor, "node batch mode"]
    anchor: Float[Tensor, "node batch knot_channel"]
    present: Bool[Tensor, "node batch"] | None
    present_on_host: Bool[Tensor, "node batch"] | None
