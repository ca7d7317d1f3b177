r"""PatchTST: "A Time Series is Worth 64 Words: Long-term Forecasting with Transformers".

Each channel of each node by itself: the past is normalised, cut into overlapping patches, which are
the tokens of a transformer, and a linear map of all tokens gives all leads,

    x~ = (x - mean) / std,   z_p = W_p patch_p + e_p,   y = mean + std (W flatten(Transformer(z)))

References:
    Y. Nie, N. H. Nguyen, P. Sinthong, J. Kalagnanam, ICLR 2023.

Deviations:
    - Patches have 16 steps and a stride of 8; of a past shorter than 48 steps a third.
    - LayerNorm in place of BatchNorm, which would mix the windows of a batch; no dropout.
    - Calendar, place and sun add a linear term to the normalised forecast.
    - std is at least 0.1 standard deviations of the data: after a night without sun it is 0.
    - Every channel has its own last map.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import gelu, pad, scaled_dot_product_attention

from stonet.config import Config
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.models.baselines.base import dense
from stonet.models.baselines.series import CovariateMap, Series, SeriesBaseline, by_channel

PATCH, HEADS = 16, 4
MIN_VARIANCE = 0.01  # added to the variance of a window, in units of the data's

Tokens = Float[Tensor, "row patch hidden"]


class TransformerLayer(nn.Module):
    """Attention among the tokens, then a network of each; both with residuals and norms.

    Args:
        hidden: width of a token; a multiple of the number of heads.
        heads: of the attention.
    """

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project, self.merge = dense(hidden, hidden, maps=3), dense(hidden, hidden)
        self.wide, self.narrow = dense(hidden, 2 * hidden), dense(2 * hidden, hidden)
        self.norm_attention, self.norm_network = nn.LayerNorm(hidden), nn.LayerNorm(hidden)

    def forward(self, z: Tokens) -> Tokens:
        """The next tokens.

        Args:
            z: tokens of every row.
        """
        split = self.project(z).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(*split)  # row head patch feature
        z = self.norm_attention(z + self.merge(mixed.transpose(1, 2).flatten(2)))
        return self.norm_network(z + self.narrow(gelu(self.wide(z))))


class PatchTST(SeriesBaseline):
    """Three layers of 64 features with four heads."""

    lr = 1e-3
    raced = ((64, 1e-3), (32, 3e-3), (16, 5e-3))

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__(config, time_spec, channels, nodes)
        hidden, layers = self.baseline.hidden or 64, self.baseline.layers or 3
        past, horizon = self.time_spec.past, self.time_spec.horizon
        heads = max(h for h in range(1, HEADS + 1) if hidden % h == 0)
        self.patch = max(1, min(PATCH, past // 3))
        self.stride = max(1, self.patch // 2)
        count = (past + self.stride - self.patch) // self.stride + 1
        self.embed = dense(self.patch, hidden)
        self.position = nn.Parameter(0.02 * torch.randn(count, hidden))
        self.layers = nn.ModuleList(TransformerLayer(hidden, heads) for _ in range(layers))
        self.readout = nn.Parameter(torch.zeros(channels, horizon, count * hidden))
        self.bias = nn.Parameter(torch.zeros(channels, horizon))
        self.covariates = CovariateMap(self.known_width, channels, horizon)

    def forecast_series(
        self, series: Series, ahead: Float[Tensor, "batch node known"]
    ) -> Float[Tensor, "batch node channel future"]:
        """The forecast, normalised by the window and back."""
        mean = series.mean(-1, keepdim=True)
        std = (series.var(-1, correction=0, keepdim=True) + MIN_VARIANCE).sqrt()
        z = self.tokens(((series - mean) / std).flatten(0, 2))
        for layer in self.layers:
            z = layer(z)
        features = z.flatten(1).unflatten(0, series.shape[:3])
        own = by_channel(features, self.readout) + self.bias + self.covariates(ahead)
        return std * own if self.base is not None else mean + std * own

    def tokens(self, rows: Float[Tensor, "row past"]) -> Tokens:
        """The patches of each row, embedded; the newest value is repeated at the end.

        Args:
            rows: normalised pasts.
        """
        padded = pad(rows[:, None], (0, self.stride), mode="replicate")[:, 0]
        return self.embed(padded.unfold(1, self.patch, self.stride)) + self.position
