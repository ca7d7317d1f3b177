r"""DLinear: "Are Transformers Effective for Time Series Forecasting?".

The past is divided into a trend, its moving average, and the remainder; each has one linear map to
all leads,

    trend_t = mean of x_{t-12}, ..., x_{t+12},    y = W_t trend + W_s (x - trend) + b

where the ends of the past are repeated outside of it.

References:
    A. Zeng, M. Chen, L. Zhang, Q. Xu, AAAI 2023.

Deviations:
    - Calendar, place and sun add a linear term; the paper has no such inputs.
    - Every channel has its own maps (the paper's DLinear-I); all nodes share them.
    - The average is over 25 steps or half of a shorter past.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import avg_pool1d, pad

from stonet.config import Config
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.models.baselines.series import CovariateMap, Series, SeriesBaseline, by_channel

WINDOW = 25  # steps of the moving average


class DLinear(SeriesBaseline):
    """Linear maps of trend and remainder; it has no width, so that learning rates race."""

    lr = 5e-3

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__(config, time_spec, channels, nodes)
        past, horizon = self.time_spec.past, self.time_spec.horizon
        self.window = min(WINDOW, past // 4 * 2 + 1)  # odd
        shape = (channels, horizon, past)
        start = 0.0 if self.base is not None else 1.0 / past
        self.trend = nn.Parameter(torch.full(shape, start))
        self.remainder = nn.Parameter(torch.full(shape, start))
        self.bias = nn.Parameter(torch.zeros(channels, horizon))
        self.covariates = CovariateMap(self.known_width, channels, horizon)

    def candidates(self, config: Config, samples: int) -> tuple[dict[str, str | int | float], ...]:
        """Learning rates."""
        return tuple({"train.lr": lr} for lr in (5e-3, 1e-3, 2e-2))

    def forecast_series(
        self, series: Series, ahead: Float[Tensor, "batch node known"]
    ) -> Float[Tensor, "batch node channel future"]:
        """W_t trend + W_s (x - trend) + b + covariates."""
        trend = moving_average(series, self.window)
        own = by_channel(trend, self.trend) + by_channel(series - trend, self.remainder)
        return own + self.bias + self.covariates(ahead)


def moving_average(series: Series, window: int) -> Series:
    """The mean over `window` steps around each step (odd), with repeated ends.

    Args:
        series: past values.
        window: odd number of steps.
    """
    half = window // 2
    rows = series.flatten(0, 2)[:, None]
    padded = pad(rows, (half, half), mode="replicate")
    return avg_pool1d(padded, window, stride=1).view(series.shape)
