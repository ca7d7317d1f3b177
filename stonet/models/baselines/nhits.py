r"""N-HiTS: "Neural Hierarchical Interpolation for Time Series Forecasting".

Three blocks, from slow to fast. Each reads what the blocks before it have not explained,

    h = MLP(MaxPool_k(x)),   (theta_b, theta_f) = W h,   x <- x - g(theta_b),   y <- y + g(theta_f)

where g interpolates a few knots linearly; a block that pools k steps has a knot for k leads.

References:
    C. Challu, K. G. Olivares, B. N. Oreshkin, F. Garza, M. Mergenthaler-Canseco, A. Dubrawski,
    AAAI 2023.

Deviations:
    - All channels of a node enter and leave together; the paper has one series.
    - k is 4, 2, 1, with one block each. The knots span the leads evenly, ends included.
    - Calendar, place and sun enter every MLP, as the exogenous variables of the authors' code.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import max_pool1d

from stonet.config import Config
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.models.baselines.series import Series, SeriesBaseline

POOLS = (4, 2, 1)  # steps that a block pools


class HierarchicalBlock(nn.Module):
    """One block: the knots of past and future from the pooled past.

    Args:
        pool: k, steps that are pooled, and leads of a knot.
        past: steps of x.
        horizon: leads of y.
        channels: of both.
        known: width of further inputs.
        hidden: width of the network.
        layers: its hidden layers.
    """

    interpolation_past: Tensor
    interpolation_future: Tensor

    def __init__(
        self,
        pool: int,
        past: int,
        horizon: int,
        channels: int,
        known: int,
        hidden: int,
        layers: int,
    ) -> None:
        super().__init__()
        self.pool, self.channels = min(pool, past), channels
        knots_past, knots = -(-past // self.pool), -(-horizon // pool)
        width, parts = channels * knots_past + known, list[nn.Module]()
        for _ in range(layers):
            parts += [nn.Linear(width, hidden), nn.ReLU()]
            width = hidden
        self.body = nn.Sequential(*parts)
        self.theta = nn.Linear(hidden, channels * (knots_past + knots))
        self.sizes = (knots_past, knots)
        for name, size, steps in (("past", knots_past, past), ("future", knots, horizon)):
            matrix = torch.from_numpy(interpolation(size, steps))
            self.register_buffer(f"interpolation_{name}", matrix.T.contiguous(), persistent=False)

    def forward(
        self, x: Series, ahead: Float[Tensor, "batch node known"]
    ) -> tuple[Series, Float[Tensor, "batch node channel future"]]:
        """g(theta_b) and g(theta_f).

        Args:
            x: what earlier blocks left of the past.
            ahead: known inputs at the leads.
        """
        rows = x.flatten(0, 1)
        pooled = max_pool1d(rows, self.pool, self.pool, ceil_mode=True).flatten(1)
        inputs = torch.cat([pooled.unflatten(0, x.shape[:2]), ahead], dim=-1)
        theta = self.theta(self.body(inputs)).unflatten(-1, (self.channels, -1))
        back, forward = theta.split(self.sizes, dim=-1)
        matrices = self.interpolation_past, self.interpolation_future
        return back @ matrices[0].to(back), forward @ matrices[1].to(forward)


class NHITS(SeriesBaseline):
    """Three blocks of two layers of 512 units."""

    lr = 1e-3
    raced = ((512, 1e-3), (128, 3e-3), (64, 5e-3))

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__(config, time_spec, channels, nodes)
        hidden, layers = self.baseline.hidden or 512, self.baseline.layers or 2
        past, horizon = self.time_spec.past, self.time_spec.horizon
        sizes = (past, horizon, channels, self.known_width, hidden, layers)
        blocks = [HierarchicalBlock(pool, *sizes) for pool in POOLS]
        self.blocks = nn.ModuleList(blocks)
        if self.base is not None:
            for block in blocks:
                nn.init.zeros_(block.theta.weight)  # training starts from the base
                nn.init.zeros_(block.theta.bias)

    def forecast_series(
        self, series: Series, ahead: Float[Tensor, "batch node known"]
    ) -> Float[Tensor, "batch node channel future"]:
        """The sum of the blocks' forecasts."""
        forecast = series.new_zeros(*series.shape[:3], self.time_spec.horizon)
        for block in self.blocks:
            back, forward = block(series, ahead)
            series, forecast = series - back, forecast + forward
        return forecast


def interpolation(knots: int, steps: int) -> np.ndarray:
    """The matrix of linear interpolation from evenly spaced knots to all steps, ends included.

    Args:
        knots: their number.
        steps: number of steps.
    """
    position = np.linspace(0, knots - 1, steps) if steps > 1 else np.full(1, (knots - 1) / 2)
    return np.stack([np.interp(position, np.arange(knots), row) for row in np.eye(knots)], axis=1)
