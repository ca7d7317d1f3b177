"""KrigingGraph: the nearest nodes of each query, and values interpolated from those present."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor
from torch.nn.functional import pad

from stonet.data.geometry import Points
from stonet.graph.neighbours import nearest_nodes, own_nodes
from stonet.linear.kriging import Covariance, kriging_weights, neighbour_offsets
from stonet.system.devices import in_float32

CANDIDATES = 24  # nearest nodes of a query; the nearest of them that are present get weights


@dataclass(frozen=True)
class KrigingGraph:
    """The nearest nodes of every query and their kriging weights if none is missing."""

    index: Int[Tensor, "query near"]
    offset: Float64[Tensor, "query near 2"]  # in mean spacings
    usable: Bool[Tensor, "query near"]  # False for the query point itself
    weight: Float[Tensor, "query near"]
    own: Int[Tensor, " query"]  # the node at the query's position; number of nodes if none
    covariance: Covariance

    def to(self, device: torch.device, dtype: torch.dtype) -> KrigingGraph:
        """The same on a device, with weights of this type."""
        return replace(
            self,
            index=self.index.to(device),
            offset=self.offset.to(device),
            usable=self.usable.to(device),
            weight=self.weight.to(device, dtype),
            own=self.own.to(device),
        )

    def has_history(self, present: Bool[Tensor, "node batch"]) -> Bool[Tensor, "query batch"]:
        """Whether a query is a node with a history."""
        return pad(present, (0, 0, 0, 1))[self.own]

    @in_float32
    def at_queries(
        self,
        values: Float[Tensor, "node batch width"],
        present: Bool[Tensor, "node batch"] | None,
    ) -> Float[Tensor, "query batch width"]:
        """The values of the nodes at the queries; kriged where a query is no node with a value.

        Args:
            values: at the nodes.
            present: which nodes have a value; None: all.
        """
        num_nodes, batch, width = values.shape
        own = pad(values, (0, 0, 0, 0, 0, 1))[self.own]
        if present is None:
            has = self.own < num_nodes
            if bool(has.all()):
                return own
            foreign = torch.nonzero(~has)[:, 0]
            near = values.index_select(0, self.index[foreign].flatten())
            near = near.view(len(foreign), -1, batch * width)
            kriged = torch.bmm(self.weight[foreign, None].to(values.dtype), near)[:, 0]
            return own.index_copy(0, foreign, kriged.view(-1, batch, width))
        query, window = torch.nonzero(~self.has_history(present)).T
        if not len(query):
            return own
        near = values[self.index[query], window[:, None]]  # pair near width
        weight = self._weights(query, window, present).to(values.dtype)
        kriged = torch.bmm(weight[:, None], near)[:, 0]
        return own.index_put((query, window), kriged)

    def _weights(
        self,
        query: Int[Tensor, " pair"],
        window: Int[Tensor, " pair"],
        present: Bool[Tensor, "node batch"],
    ) -> Float64[Tensor, "pair near"]:
        """Weights for each (query, window), without missing nodes; equal patterns solved once."""
        there = present[self.index[query], window[:, None]]
        usable = self.usable[query] & there
        weight = self.weight[query].double()
        lacking = torch.nonzero((usable != self.usable[query]).any(-1))[:, 0]
        if not len(lacking):
            return weight
        bit = 2 ** torch.arange(usable.shape[-1], device=usable.device)
        code = query[lacking] * 2 * bit[-1] + (usable[lacking] * bit).sum(-1)
        codes, row = torch.unique(code, return_inverse=True)
        example = lacking.new_empty(len(codes)).scatter_(0, row, lacking)
        offset, some = self.offset[query[example]], usable[None, example]
        solved = kriging_weights(offset, some, self.covariance)[0]
        return weight.index_copy(0, lacking, solved[row])


def make_kriging_graph(
    queries: Points,
    nodes: Points,
    covariance: Covariance,
    index: Int[Tensor, "query near"] | None = None,
    own: Int[Tensor, " query"] | None = None,
) -> KrigingGraph:
    """The kriging graph of some queries.

    Args:
        queries: points where values are wanted.
        nodes: points with values.
        covariance: of the field; its spacing is the unit of length.
        index: the nearest nodes (None: found here).
        own: the node at each query (None: found here).
    """
    if index is None:
        index = torch.from_numpy(nearest_nodes(queries, nodes, CANDIDATES)[1])
    offset, usable = neighbour_offsets(queries, nodes, covariance.spacing, index.numpy())
    weight = kriging_weights(offset, usable[None], covariance)[0]
    own = torch.from_numpy(own_nodes(queries, nodes)) if own is None else own
    return KrigingGraph(index, offset, usable, weight, own, covariance)
