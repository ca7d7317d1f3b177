r"""Attention: the kernel integral with a normalised kernel that depends on the values.

    y(x) = A concat_h sum_{j in N(x)} p_hj V_h v_j,
    p_hj = softmax over j of (Q_h s(x)) . (K_h v_j) / sqrt(d) + b_h(x, x_j)

b is a network of the offset. The plain kernel takes a mean over all neighbours; this one prefers
those whose past resembles what the query looks for. It starts at zero.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from stonet.graph.neighbours import Block, Neighbours
from stonet.operators.graph_kernel import WORKSPACE_FLOATS, split_block

KEY, VALUE = 16, 32  # width of each head


class NeighbourAttention(nn.Module):
    """Attention of a query's state over the encoded pasts around it.

    Args:
        edge: features of an edge.
        state: width of s.
        latent: width of v.
        outputs: width of y.
        heads: number of heads.
        hidden: hidden units of b.
    """

    workspace = WORKSPACE_FLOATS

    def __init__(
        self, edge: int, state: int, latent: int, outputs: int, heads: int, hidden: int
    ) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(state, heads * KEY)
        self.key = nn.Linear(latent, heads * KEY, bias=False)
        self.value = nn.Linear(latent, heads * VALUE, bias=False)
        self.offset = nn.Sequential(nn.Linear(edge, hidden), nn.GELU(), nn.Linear(hidden, heads))
        self.map = nn.Linear(heads * VALUE, outputs, bias=False)
        nn.init.zeros_(self.map.weight)

    def forward(
        self,
        state: Float[Tensor, "target batch state"],
        values: Float[Tensor, "source batch latent"],
        neighbours: Neighbours,
        present: Bool[Tensor, "source batch"] | None = None,
    ) -> Float[Tensor, "target batch output"]:
        """Y at every target; zero where no neighbour has a value.

        Args:
            state: s at the targets.
            values: v at the sources.
            neighbours: the edges.
            present: which sources have a value; None: all.
        """
        there = values.new_ones(values.shape[:2], dtype=torch.bool) if present is None else present
        there = pad(there, (0, 0, 0, 1))  # the last row is padding
        query, key = self.query(state), pad(self.key(values), (0, 0, 0, 0, 0, 1))
        value = pad(self.value(values), (0, 0, 0, 0, 0, 1))
        size = values.shape[1] * self.heads * (KEY + VALUE)
        rows, parts = [], []
        for block in neighbours.blocks:
            capacity = self.workspace // max(1, size * block.index.shape[1])
            for _, piece in split_block(block, capacity):
                offset = self.offset(piece.features)
                arguments = query, key, value, there, offset, piece
                parts.append(checkpoint(self._attend, *arguments, use_reentrant=False))
                rows.append(piece.rows)
        result = values.new_zeros(len(state), values.shape[1], self.heads * VALUE)
        if rows:
            result = result.index_copy(0, torch.cat(rows), torch.cat(parts))
        return self.map(result)

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        there: Tensor,
        offset: Float[Tensor, "row degree head"],
        piece: Block,
    ) -> Float[Tensor, "row batch width"]:
        """The weighted values of some targets."""
        index, size = piece.index.flatten(), piece.index.shape
        near = key.index_select(0, index).unflatten(0, size).unflatten(-1, (self.heads, KEY))
        asked = query.index_select(0, piece.rows).unflatten(-1, (self.heads, KEY))
        logits = torch.einsum("rbhk,rnbhk->rnbh", asked, near) / math.sqrt(KEY)
        known = there.index_select(0, index).unflatten(0, size)[..., None]
        logits = (logits + offset[:, :, None]).masked_fill(~known, torch.finfo(key.dtype).min)
        weight = logits.softmax(1) * known  # zero where no neighbour is known
        taken = value.index_select(0, index).unflatten(0, size).unflatten(-1, (self.heads, VALUE))
        return torch.einsum("rnbh,rnbhv->rbhv", weight, taken).flatten(2)
