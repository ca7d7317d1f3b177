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
from stonet.system.devices import in_float32, to_device

CANDIDATES = 24  # nearest nodes of a query; the nearest of them that are present get weights


@dataclass(frozen=True)
class KrigingGraph:
    """The nearest nodes of every query and their kriging weights if none is missing.

    Which queries are interpolated is decided in the host's memory (`host`), so that nobody waits
    for a GPU.

    Args:
        index: nearest nodes of each query.
        offset: in mean spacings.
        usable: False for the query point itself.
        weight: of each of these nodes if none is missing.
        own: the node at the query's position; number of nodes if none.
        foreign: queries that are no node.
        covariance: from which the weights follow.
        host: the same in the host's memory; None: this one is there.
    """

    index: Int[Tensor, "query near"]
    offset: Float64[Tensor, "query near 2"]
    usable: Bool[Tensor, "query near"]
    weight: Float[Tensor, "query near"]
    own: Int[Tensor, " query"]
    foreign: Int[Tensor, " foreign"]
    covariance: Covariance
    host: KrigingGraph | None = None

    def to(self, device: torch.device, dtype: torch.dtype) -> KrigingGraph:
        """The same on a device, with weights of this type.

        Args:
            device: a processor or a GPU.
            dtype: of the weights.
        """
        return replace(
            self,
            index=self.index.to(device),
            offset=self.offset.to(device),
            usable=self.usable.to(device),
            weight=self.weight.to(device, dtype),
            own=self.own.to(device),
            foreign=self.foreign.to(device),
            host=None if device.type == "cpu" else self.on_host,
        )

    @property
    def on_host(self) -> KrigingGraph:
        """The same in the host's memory."""
        return self if self.host is None else self.host

    def has_history(
        self, present: Bool[Tensor, "node batch"] | None
    ) -> Bool[Tensor, "query batch_or_1"] | None:
        """Whether a query is a node with a history; None if all are.

        Args:
            present: which nodes have a history; None: all.
        """
        if present is not None:
            return pad(present, (0, 0, 0, 1))[self.own]
        if not len(self.foreign):
            return None
        return torch.ones_like(self.own, dtype=torch.bool).index_fill(0, self.foreign, False)[
            :, None
        ]

    @in_float32
    def at_queries(
        self,
        values: Float[Tensor, "node batch width"],
        present: Bool[Tensor, "node batch"] | None,
    ) -> Float[Tensor, "query batch width"]:
        """The values of the nodes at the queries; kriged where a query is no node with a value.

        Args:
            values: at the nodes.
            present: which nodes have a value, in the host's memory; None: all.
        """
        own = pad(values, (0, 0, 0, 0, 0, 1))[self.own]
        if present is not None:
            return self._without_missing(own, values, present)
        if not len(self.foreign):
            return own
        near = values.index_select(0, self.index[self.foreign].flatten())
        near = near.view(len(self.foreign), -1, values[0].numel())
        weight = self.weight[self.foreign, None].to(values.dtype)
        kriged = torch.bmm(weight, near).view(-1, *values.shape[1:])
        return own.index_copy(0, self.foreign, kriged)

    def _without_missing(
        self,
        own: Float[Tensor, "query batch width"],
        values: Float[Tensor, "node batch width"],
        present: Bool[Tensor, "node batch"],
    ) -> Float[Tensor, "query batch width"]:
        """Each window by itself, kriged from the nodes that are present in it."""
        host, (_, batch, width) = self.on_host, values.shape
        query, window = torch.nonzero(~pad(present, (0, 0, 0, 1))[host.own]).T
        if not len(query):
            return own
        near = host.index[query] * batch + window[:, None]
        parts = near, query * batch + window, host._weights(query, window, present)
        near, row, weight = (to_device(part, self.own.device) for part in parts)
        there = values.flatten(0, 1).index_select(0, near.flatten())
        kriged = torch.bmm(weight[:, None].to(values.dtype), there.view(*near.shape, width))
        return own.flatten(0, 1).index_copy(0, row, kriged[:, 0]).view(own.shape)

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
        own: the node at each query, or their number (None: found here).
    """
    if index is None:
        index = torch.from_numpy(nearest_nodes(queries, nodes, CANDIDATES)[1])
    offset, usable = neighbour_offsets(queries, nodes, covariance.spacing, index.numpy())
    weight = kriging_weights(offset, usable[None], covariance)[0]
    own = torch.from_numpy(own_nodes(queries, nodes)) if own is None else own
    foreign = torch.nonzero(own == len(nodes))[:, 0]
    return KrigingGraph(index, offset, usable, weight, own, foreign, covariance)
