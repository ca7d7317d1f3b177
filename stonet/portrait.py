r"""Portraits: what training has seen of a place, and so expects of places around it.

A point's mean, spread and daily course (two harmonics) in the training part, each in standard
deviations over the training points. Elsewhere portraits are kriged from theirs (texture.py), with
a texture of their own. No weight belongs to a point: a portrait is an input, as its position is.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from scipy.spatial import cKDTree
from torch import Tensor, nn
from torch.nn.functional import pad

from stonet.clock import DAY, Clock
from stonet.geometry import Points
from stonet.neighbours import own_nodes
from stonet.texture import KRIGED, Texture, find_texture, krige, look_around, nearest_nodes
from stonet.windows import Windows

FRAMES, MOST = 4096, 2**26  # that portraits are made of; values of theirs
HARMONICS = 2  # of the day
AT_ONCE = 2**22  # values looked at together
ASKED = 2**13  # points whose portraits are kriged at a time


class Portraits(nn.Module):
    """Of the training points. Nothing here is trained by gradients.

    Args:
        clock: of the data; without hours there is no daily course.
        channels: of the field.
        nodes: the training points.
    """

    known: Tensor
    texture: Tensor

    def __init__(self, clock: Clock, channels: int, nodes: Points) -> None:
        super().__init__()
        self.clock, self.nodes = clock, nodes
        self.traits = channels * (2 + (2 * HARMONICS if clock.daily else 0))
        self.register_buffer("known", torch.zeros(len(nodes), self.traits))
        texture = torch.tensor(Texture(1.0), dtype=torch.float64)
        self.register_buffer("texture", texture)

    @torch.no_grad()
    def fit(self, windows: Windows) -> None:
        """From some of the frames that training may see; what does not vary tells nothing."""
        traits = _traits(windows, self.clock, len(self.nodes))
        _, place = cKDTree(self.nodes.embedded).query(self.nodes.embedded)
        one = torch.from_numpy(place)  # of those at a place, whose portrait is their mean
        total = torch.zeros_like(traits).index_add(0, one, traits)
        traits = (total / one.bincount(minlength=len(one)).clamp(min=1)[:, None])[one]
        spread = traits.std(0, correction=0)
        told = torch.where(spread > 1e-6, (traits - traits.mean(0)) / spread, 0.0)
        self.known.copy_(told)
        self.texture.copy_(torch.tensor(find_texture(told[None], None, self.nodes)))

    @torch.no_grad()
    def at(self, points: Points) -> Float[Tensor, "point trait"]:
        """A training point's own portrait; elsewhere the kriged one."""
        own = own_nodes(points, self.nodes)
        result = pad(self.known, (0, 0, 0, 1))[torch.from_numpy(own)]
        others = np.flatnonzero(own == len(self.nodes))
        if len(others):
            result[torch.from_numpy(others)] = self.expected(points.take(others))
        return result

    @torch.no_grad()
    def expected(self, points: Points) -> Float[Tensor, "point trait"]:
        """As the training points around would have it, whoever stands at the place itself."""
        texture, parts = Texture(*self.texture.tolist()), []
        for start in range(0, len(points), ASKED):
            some = points.take(np.arange(start, min(start + ASKED, len(points))))
            index = nearest_nodes(some, self.nodes, KRIGED + 1)  # and itself
            offset, usable = look_around(some, self.nodes, texture.spacing, index)
            weight = krige(offset, usable[None], texture.reach, texture.noise)[0]
            near = self.known[torch.from_numpy(index)]
            parts.append(torch.einsum("qn,qnt->qt", weight.to(near), near))
        return torch.cat(parts)

    def shown(
        self, points: Points, strange: Bool[Tensor, "window point"]
    ) -> Float[Tensor, "window point trait"]:
        """Portraits for lessons: strange points look as if training had never seen them."""
        return torch.where(strange[..., None], self.expected(points), self.at(points))


def _traits(windows: Windows, clock: Clock, nodes: int) -> Float64[Tensor, "node trait"]:
    """Mean, spread and daily harmonics of what was observed at each node."""
    few = windows.draw(max(1, min(FRAMES, MOST // nodes)))
    frames = np.sort(few.starts + clock.past - 1)
    turns = [2 * math.pi * k * (few.times[frames] % DAY) / DAY for k in range(1, HARMONICS + 1)]
    waves = [wave(turn) for turn in (turns if clock.daily else []) for wave in (np.cos, np.sin)]
    course = torch.from_numpy(np.stack([np.ones(len(frames)), *waves]))  # wave frame
    sums: list[Tensor] = []
    for some in np.array_split(np.arange(len(frames)), math.ceil(len(frames) * nodes / AT_ONCE)):
        values, observed = (part.double() for part in few.at(frames[some]))
        told = torch.stack([observed, values, values.square()])
        part = torch.einsum("wt,qtnc->wqnc", course[:, some], told)
        sums = [part if not sums else sums[0] + part]
    count, total, squared = sums[0].unbind(1)  # wave node channel
    count = count[:1].clamp(min=1)
    mean = total[0] / count[0]
    spread = (squared[0] / count[0] - mean.square()).clamp(min=0).sqrt()
    daily = 2 * (total[1:] - mean * sums[0][1:, 0]) / count
    return torch.stack([mean, spread, *daily]).permute(1, 0, 2).flatten(1)
