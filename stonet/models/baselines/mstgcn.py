r"""MSTGCN: "Attention Based Spatial-Temporal Graph Convolutional Networks for Traffic Flow ...".

The model of that paper without attention. Blocks of

    g_t = ReLU(sum_{k<K} T_k(L~) x_t Theta_k + b),    y = LayerNorm(ReLU(conv(g) + W x + b'))

with L~ = 2 L / lambda_max - I and L = D - A, and a linear map from all steps of the last block to
all leads.

References:
    S. Guo, Y. Lin, N. Feng, C. Song, H. Wan, AAAI 2019.

Deviations:
    - Only the recent past is an input; the paper has two more branches for days and weeks before.
    - Four blocks of 64 features; the paper has two.
    - A is 1 between nearest neighbours.
    - A past longer than 12 steps is strided, counted from its end, with a convolution wide enough
      to include every step. The code of later benchmarks has a stride of 6, which ignores the
      newest four of 12 steps, and mixes the samples of a batch; this one does neither.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from stonet.config import Config
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.models.baselines.base import GraphBaseline, Inputs, dense
from stonet.models.baselines.convolutional import ConvBlock, by_node, split_leads, strides
from stonet.models.baselines.graph_filters import Operator, adjacency, chebyshev, plain_laplacian
from stonet.models.forecaster import Supervision


class MSTGCN(GraphBaseline[Operator]):
    """Chebyshev filters and convolutions over time; K = 3, four blocks of 64 features."""

    lr = 2e-3
    raced = ((64, 2e-3), (32, 5e-3), (16, 1e-2))
    supported_settings = frozenset({"order"})

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__(config, time_spec, channels, nodes)
        hidden, blocks = self.baseline.hidden or 64, self.baseline.layers or 4
        self.order = self.baseline.order or 3
        inputs = [self.input_width] + [hidden] * (blocks - 1)
        steps = strides(self.time_spec.past, blocks)
        self.blocks = nn.ModuleList(
            ConvBlock(width, hidden, self.order, stride)
            for width, stride in zip(inputs, steps, strict=True)
        )
        slots = (self.time_spec.past - 1) // steps[0] + 1
        self.readout = dense(slots * hidden, self.time_spec.horizon * channels)
        if self.base is not None:
            nn.init.zeros_(self.readout.weight)  # training starts from the base

    def operators(self, nodes: Points) -> Operator:
        """The scaled Laplacian L~."""
        return Operator.of(
            plain_laplacian(adjacency(nodes, self.num_neighbours)), *self._device_dtype
        )

    def forecast_nodes(
        self, inputs: Inputs, operators: Operator, supervision: Supervision | None
    ) -> Float[Tensor, "batch future node channel"]:
        """All leads by a linear map of the last block's states."""
        x = by_node(inputs)
        for block in self.blocks:
            x = block(x, chebyshev(operators, x, self.order))
        return split_leads(self.readout(x.flatten(2)), self.channels)
