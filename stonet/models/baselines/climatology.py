r"""Climatology: what is usual at a point and hour. The reference forecast for those who look far ahead.

u(x, t) = mean of u(x, s) over the training times s in the same hour of the day as t
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int, Int64
from torch import Tensor

from stonet.config import Config
from stonet.data.batch import Batch, Values
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.data.windows import Windows
from stonet.graph.neighbours import nearest_nodes, own_nodes
from stonet.models.forecaster import Forecaster, Graphs

NEAR = 4  # training points whose means are averaged at a place that is none of them
WORKSPACE = 2**22  # floats read at once


@dataclass(frozen=True)
class Trained:
    """The training points around each query, and their weights."""

    near: Int[Tensor, "query near"]
    weight: Float64[Tensor, "query near"]


class Climatology(Forecaster):
    """The training part's mean at each point, by hour of the day where the data know hours.

        u(x, t) = mean of u(x, s) over the training times s in the same hour of the day as t

    Hours without a value are interpolated from those before and after, around the time_spec. A place
    that was not trained on gets its nearest training points' means, weighted by 1 / distance^2;
    so does, once fitted, a training point that never observed anything.
    """

    mean: Tensor

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__()
        self.hours, self.nodes = 24 if time_spec.daily else 1, nodes
        table = torch.zeros(self.hours, len(nodes), channels, dtype=torch.float64)
        self.register_buffer("mean", table)

    def graph(self, nodes: Points) -> None:
        return None

    def links(self, nodes: Points, queries: Points) -> Trained:
        near, weight = _nearest(self.nodes, queries, NEAR)
        where = self.mean.device
        return Trained(torch.from_numpy(near).to(where), torch.from_numpy(weight).to(where))

    def encode(self, batch: Batch, graphs: Graphs) -> None:
        return None

    def decode(
        self, encoded: None, batch: Batch, graphs: Graphs
    ) -> Float[Tensor, "batch future query channel"]:
        links: Trained = graphs.links
        table = (self.mean[:, links.near] * links.weight[..., None]).sum(2)
        if self.hours == 1:
            hour = torch.zeros(batch.future_time.shape[:2], dtype=torch.long, device=table.device)
        else:  # float32 may put a full hour a little before itself
            hour = (batch.future_time[..., -1].double() * 24 + 1e-4).long() % 24
        return table[hour].to(batch.frames.dtype)

    @torch.no_grad()
    def fit_closed_form(self, train: Windows, validation: Windows, nodes: Points) -> None:
        sums, counts = torch.zeros_like(self.mean), torch.zeros_like(self.mean)
        for frames, (values, observed) in _given(train):
            hour = torch.from_numpy(train.time_spec.hour(train.times[frames]))
            sums.index_add_(0, hour, values.double() * observed)
            counts.index_add_(0, hour, observed.double())
        means = _around_the_clock((sums / counts.clamp(min=1)).numpy(), counts.numpy() > 0)
        self.mean.copy_(torch.from_numpy(_from_neighbours(means, self.nodes)))


def _given(windows: Windows) -> Iterator[tuple[Int64[np.ndarray, " frame"], Values]]:
    """Every frame that training is given, once; some hundreds at a time."""
    target, seen = np.zeros(len(windows.times), bool), np.zeros(len(windows.times), bool)
    past, horizon = windows.time_spec.past, windows.time_spec.horizon
    for step in range(past):
        seen[windows.starts + step] = True
    for step in range(horizon):
        kept = slice(None) if windows.labels is None else windows.labels[:, step]
        target[windows.starts[kept] + past + step] = True
    nodes = len(windows.fields[0].points) if windows.nodes is None else len(windows.nodes)
    size = max(1, WORKSPACE // (nodes * len(windows.fields[0].channels)))
    for read, chosen in ((windows.at, target), (windows.given, seen & ~target)):
        every = np.flatnonzero(chosen)
        for start in range(0, len(every), size):
            frames = every[start : start + size]
            yield frames, read(frames)


def _around_the_clock(
    mean: Float64[np.ndarray, "hour node channel"], known: Bool[np.ndarray, "hour node channel"]
) -> Float64[np.ndarray, "hour node channel"]:
    """Hours without a value: linear between the ones before and after; NaN where there is none."""
    hours = len(mean)
    number = np.arange(3 * hours)[:, None, None]  # yesterday, today and tomorrow
    three, there = np.tile(mean, (3, 1, 1)), np.tile(known, (3, 1, 1))
    before = np.maximum.accumulate(np.where(there, number, -1), axis=0)[hours : 2 * hours]
    after = np.minimum.accumulate(np.where(there, number, 3 * hours)[::-1], axis=0)[::-1]
    after = after[hours : 2 * hours]
    none = ~known.any(0)
    low, high = np.where(none, 0, before), np.where(none, 0, after)
    t = (number[hours : 2 * hours] - low) / np.maximum(high - low, 1)
    filled = np.take_along_axis(three, low, 0) * (1 - t) + np.take_along_axis(three, high, 0) * t
    return np.where(known, mean, np.where(none, np.nan, filled))


def _from_neighbours(
    mean: Float64[np.ndarray, "hour node channel"], nodes: Points
) -> Float64[np.ndarray, "hour node channel"]:
    """Points without any mean take their nearest points' ones; the overall mean, 0, if none has."""
    mean = mean.copy()
    for channel in range(mean.shape[2]):
        there = ~np.isnan(mean[0, :, channel])
        if not there.any():
            mean[:, :, channel] = 0.0
        elif not there.all():
            some, others = np.flatnonzero(there), np.flatnonzero(~there)
            near, weight = _nearest(nodes.take(some), nodes.take(others), NEAR)
            mean[:, others, channel] = (mean[:, some[near], channel] * weight).sum(-1)
    return mean


def _nearest(
    nodes: Points, queries: Points, most: int
) -> tuple[Int64[np.ndarray, "query near"], Float64[np.ndarray, "query near"]]:
    """The nearest nodes and weights that sum to 1; a query that is a node has that one alone."""
    distance, index = nearest_nodes(queries, nodes, most)
    weight = 1.0 / np.maximum(distance, 1e-9) ** 2
    own = own_nodes(queries, nodes)
    itself = own < len(nodes)
    index[itself, 0], weight[itself] = own[itself], np.arange(index.shape[1]) == 0
    return index, weight / weight.sum(1, keepdims=True)
