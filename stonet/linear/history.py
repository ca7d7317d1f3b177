r"""History: the past of every point at regular steps, complete, newest first.

A history is a vector of all lags and channels. Its mean m and covariance C are estimated from the
training windows; with them gaps are filled and irregular times are resampled (`imputation.py`).
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from stonet.data.batch import Batch
from stonet.data.time_spec import TimeSpec
from stonet.data.windows import Windows, in_batches
from stonet.linear.imputation import fill_gaps, random_walk, resample
from stonet.linear.kriging import evenly_spaced

MAX_HISTORIES = 60_000  # from which mean and covariance are estimated
HISTORY_NODES = 512  # nodes of these histories
CONSECUTIVE_WINDOWS = 16  # windows that are read together
VARIANCE_FLOOR = 1e-12  # share of the variance that may be rounding
SAMPLE_WINDOWS = 64  # windows from which the share of gaps is estimated


class History(nn.Module):
    """Histories of the nodes of a batch.

    Args:
        time_spec: step and past of the data.
        channels: of the field.
    """

    mean: Tensor
    covariance: Tensor
    usual_gaps: Tensor

    def __init__(self, time_spec: TimeSpec, channels: int) -> None:
        super().__init__()
        self.past, self.channels = time_spec.past, channels
        self.width = time_spec.past * channels
        self.register_buffer("mean", torch.zeros(self.width, dtype=torch.float64))
        self.register_buffer("covariance", random_walk(time_spec.past, channels))
        self.register_buffer("usual_gaps", torch.zeros(()))  # share of inputs missing in training

    def forward(
        self, batch: Batch, every_channel: bool = False
    ) -> tuple[Float[Tensor, "batch lag node channel"], Bool[Tensor, "batch node channel"] | None]:
        """The history of every node, and which nodes have one.

        Args:
            batch: windows.
            every_channel: fill channels that a node did not observe from its other channels.

        Returns:
            The histories, zero where a node has none; and whether it has one, by channel (None:
            all have).
        """
        values, prior = batch.frames[batch.past], (self.mean, self.covariance)
        pattern = batch.missing_pattern
        present = batch.known if pattern.some else None
        if present is not None and every_channel and not pattern.same_channels:
            present = present.any(-1, keepdim=True).expand_as(present)
        else:
            every_channel = False
        irregular = batch.odd(self.past).expand(len(values))
        if not irregular.any() and not pattern.gaps and not every_channel:
            return values.flip(1), present
        observed = batch.seen[batch.past]
        if irregular.all() or (irregular.any() and values.device.type != "cpu"):
            result = resample(values, observed, batch.lag, *prior)
        else:
            lag = batch.lag
            result = fill_gaps(values.flip(1), observed.flip(1), *prior, every_channel)
            if irregular.any():  # only there: resampling takes longer than filling gaps
                result[irregular] = resample(
                    values[irregular], observed[irregular], lag[irregular], *prior
                )
        return result if present is None else result * present[:, None], present

    @property
    def surprise(self) -> float:
        """RMSE of the best linear forecast of the newest value, over that of its predecessor.

        The mean over the channels: about 1 if only the last value helps, 0 if the older values
        determine the newest one.
        """
        c, new = self.covariance, torch.arange(self.channels)
        if self.past == 1:
            return 1.0
        own = 1 / torch.linalg.inv(c).diagonal()[: self.channels]
        old = new + self.channels
        change = c[new, new] + c[old, old] - 2 * c[new, old]
        return float((own / change).clamp(0, 1).sqrt().mean())

    @torch.no_grad()
    def fit(self, windows: Windows, nodes: int) -> None:
        """Estimate mean and covariance; twice with gaps, which are first filled as a random walk.

        Only nodes with a value of every channel are used, for the covariance between channels.

        Args:
            windows: of the training part.
            nodes: number of nodes.
        """
        sample = windows.draw(SAMPLE_WINDOWS)
        gaps = [sample.inputs(i).gaps(self.past) for i in in_batches(sample, 8)]
        shares = [0.0 if share is None else float(share.mean()) for share in gaps]
        self.usual_gaps.fill_(sum(shares) / len(shares))
        some = windows.take(evenly_spaced(nodes, HISTORY_NODES))
        some = some.draw(max(1, MAX_HISTORIES // min(nodes, HISTORY_NODES)))
        for _ in range(1 + bool(self.usual_gaps > 0)):
            rows = []
            for chosen in in_batches(some, CONSECUTIVE_WINDOWS):
                values, present = self(some.inputs(chosen))
                past = values.transpose(1, 2).flatten(2).double()
                rows.append(past.flatten(0, 1) if present is None else past[present.all(-1)])
            every = torch.cat(rows)
            if len(every) <= self.width:  # too few for a covariance
                return
            covariance = torch.cov(every.T, correction=0).reshape(self.covariance.shape)
            floor = VARIANCE_FLOOR * covariance.diagonal().mean() + 1e-12
            self.mean.copy_(every.mean(0))
            self.covariance.copy_(covariance + floor * torch.eye(self.width))
