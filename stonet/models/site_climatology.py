r"""SiteClimatology: what training has seen of a place, and so expects of places around it.

A point's mean, spread and daily course (two harmonics) in the training part, each in standard
deviations over the training points. Elsewhere climatology are kriged from theirs (covariance.py), with
a covariance of their own. No weight belongs to a point: a portrait is an input, as its position is.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor, nn
from torch.nn.functional import pad

from stonet.data.durations import DAY
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.data.windows import Windows
from stonet.graph.neighbours import nearest_nodes, own_nodes
from stonet.linear.kriging import (
    KRIGED,
    Covariance,
    fit_covariance,
    krige,
    look_around,
)

FRAMES, MOST = 4096, 2**26  # that climatology are made of; values of theirs
SEEN = 0.05  # share of them in which a point must have been observed to have a portrait of its own
HARMONICS = 2  # of the day
AT_ONCE = 2**22  # values looked at together
ASKED = 2**13  # points whose climatology are kriged at a time


class SiteClimatology(nn.Module):
    """Of the training points. Nothing here is trained by gradients.

    Args:
        time_spec: of the data; without hours there is no daily course.
        channels: of the field.
        nodes: the training points.
    """

    known: Tensor
    own: Tensor
    covariance: Tensor

    def __init__(self, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__()
        self.time_spec, self.nodes = time_spec, nodes
        self.channels, self.kinds = channels, 2 + (2 * HARMONICS if time_spec.daily else 0)
        self.statistics = self.kinds * channels
        self.register_buffer("known", torch.zeros(len(nodes), self.statistics))
        self.register_buffer("own", torch.ones(len(nodes), channels))  # 0: as expected there
        covariance = torch.tensor(Covariance(1.0), dtype=torch.float64)
        self.register_buffer("covariance", covariance)

    @torch.no_grad()
    def fit(self, windows: Windows) -> None:
        """From some of the frames that training may see; what does not vary tells nothing."""
        statistics, seen = _statistics(windows, self.time_spec, len(self.nodes))
        _, place = nearest_nodes(self.nodes, self.nodes)
        one = torch.from_numpy(place[:, 0])  # of those at a place, whose portrait is their mean
        seen = seen.double().repeat(1, self.kinds)
        total, count = (
            torch.zeros_like(seen).index_add(0, one, part)[one]
            for part in (statistics * seen, seen)
        )
        statistics, own = total / count.clamp(min=1), count > 0
        sitters = own.sum(0).clamp(min=1)
        away = torch.where(own, statistics - (statistics * own).sum(0) / sitters, 0.0)
        spread = (away.square().sum(0) / sitters).sqrt()
        told = torch.where(spread > 1e-6, away / spread, 0.0)
        self.known.copy_(told)
        self.own.copy_(own[:, : self.channels])
        if own.any():
            whole = None if own.all() else own[None]
            self.covariance.copy_(torch.tensor(fit_covariance(told[None], whole, self.nodes)))
        self.known.copy_(torch.where(own, self.known, self.expected(self.nodes)))

    @torch.no_grad()
    def at(self, points: Points) -> Float[Tensor, "point statistic"]:
        """A training point's own portrait; elsewhere the kriged one."""
        own = own_nodes(points, self.nodes)
        result = pad(self.known, (0, 0, 0, 1))[torch.from_numpy(own)]
        others = np.flatnonzero(own == len(self.nodes))
        if len(others):
            result[torch.from_numpy(others)] = self.expected(points.take(others))
        return result

    @torch.no_grad()
    def expected(self, points: Points) -> Float[Tensor, "point statistic"]:
        """As the training points around would have it, whoever stands at the place itself."""
        covariance, parts = Covariance(*self.covariance.tolist()), []
        for start in range(0, len(points), ASKED):
            some = points.take(np.arange(start, min(start + ASKED, len(points))))
            index = nearest_nodes(some, self.nodes, KRIGED + 1)[1]  # and itself
            offset, usable = look_around(some, self.nodes, covariance.spacing, index)
            near, own = (part[torch.from_numpy(index)] for part in (self.known, self.own))
            guess = near.new_zeros(len(some), self.kinds, self.channels)
            for channel, sitters in enumerate((own > 0).unbind(-1)):
                there = (usable.to(sitters.device) & sitters)[None]
                weight = krige(offset.to(there.device), there, covariance.range, covariance.nugget)[
                    0
                ]
                statistics = near.unflatten(-1, (self.kinds, self.channels))[..., channel]
                guess[..., channel] = torch.einsum("qn,qnk->qk", weight.to(near), statistics)
            parts.append(guess.flatten(1))
        return torch.cat(parts)

    def shown(
        self, points: Points, as_unseen: Bool[Tensor, "window point"]
    ) -> Float[Tensor, "window point statistic"]:
        """SiteClimatology for lessons: as_unseen points look as if training had never seen them."""
        return torch.where(as_unseen[..., None], self.expected(points), self.at(points))


def _statistics(
    windows: Windows, time_spec: TimeSpec, nodes: int
) -> tuple[Float64[Tensor, "node statistic"], Bool[Tensor, "node channel"]]:
    """Mean, spread and daily harmonics of what was observed at each node; where that is enough."""
    few = windows.draw(max(1, min(FRAMES, MOST // nodes)))
    frames = np.sort(few.starts + time_spec.past - 1)
    turns = [2 * math.pi * k * (few.times[frames] % DAY) / DAY for k in range(1, HARMONICS + 1)]
    waves = [wave(turn) for turn in (turns if time_spec.daily else []) for wave in (np.cos, np.sin)]
    course = torch.from_numpy(np.stack([np.ones(len(frames)), *waves]))  # wave frame
    sums: list[Tensor] = []
    for some in np.array_split(np.arange(len(frames)), math.ceil(len(frames) * nodes / AT_ONCE)):
        values, observed = (part.double() for part in few.at(frames[some]))
        told = torch.stack([observed, values, values.square()])
        part = torch.einsum("wt,qtnc->wqnc", course[:, some], told)
        sums = [part if not sums else sums[0] + part]
    count, total, squared = sums[0].unbind(1)  # wave node channel
    enough = count[0] >= max(1.0, SEEN * len(frames))
    count = count[:1].clamp(min=1)
    mean = total[0] / count[0]
    spread = (squared[0] / count[0] - mean.square()).clamp(min=0).sqrt()
    daily = 2 * (total[1:] - mean * sums[0][1:, 0]) / count
    return torch.stack([mean, spread, *daily]).permute(1, 0, 2).flatten(1), enough
