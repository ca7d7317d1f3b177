r"""Climatology: the mean of the training period at each point and hour; a reference at long leads.

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
from stonet.models.forecaster import Encoding, Forecaster, Graphs, QueryGraph, narrow

INTERPOLATION_NODES = 4  # training points that are averaged at any other place
WORKSPACE_FLOATS = 2**22  # values that are read together


@dataclass(frozen=True)
class NearestTraining(QueryGraph):
    """The training points around each query, and their weights.

    Args:
        near: nearest training points.
        weight: of these points.
    """

    near: Int[Tensor, "query near"]
    weight: Float64[Tensor, "query near"]


class Climatology(Forecaster):
    """The training mean at each point, by hour of the day if the data have hours.

    Hours without a value are interpolated between the hours before and after, cyclically. Any other
    place gets the means of the nearest training points, weighted by 1 / distance^2; so does a
    training point without any observation.

    Args:
        config: not used.
        time_spec: decides whether there are hours.
        channels: of the field.
        nodes: the training points.
    """

    workspace = WORKSPACE_FLOATS

    mean: Tensor

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__()
        self.hours, self.nodes = 24 if time_spec.daily else 1, nodes
        table = torch.zeros(self.hours, len(nodes), channels, dtype=torch.float64)
        self.register_buffer("mean", table)

    def query_graph(self, nodes: Points, queries: Points) -> NearestTraining:
        """The training points around each query; the nodes do not matter."""
        near, weight = _interpolation(self.nodes, queries)
        device = self.mean.device
        return NearestTraining(
            torch.from_numpy(near).to(device), torch.from_numpy(weight).to(device)
        )

    def decode(
        self, encoding: Encoding, batch: Batch, graphs: Graphs
    ) -> Float[Tensor, "batch future query channel"]:
        """The mean of the hour of each lead."""
        queries = narrow(graphs.queries, NearestTraining)
        table = (self.mean[:, queries.near] * queries.weight[..., None]).sum(2)
        if self.hours == 1:
            hour = torch.zeros(batch.future_time.shape[:2], dtype=torch.long, device=table.device)
        else:  # in float32 a full hour may be slightly before itself
            hour = (batch.future_time[..., -1].double() * 24 + 1e-4).long() % 24
        return table[hour].to(batch.frames.dtype)

    @torch.no_grad()
    def fit_closed_form(self, train: Windows, validation: Windows, nodes: Points) -> None:
        """Average all training frames."""
        sums, counts = torch.zeros_like(self.mean), torch.zeros_like(self.mean)
        for frames, (values, observed) in _training_frames(train, self.workspace):
            hour = torch.from_numpy(train.time_spec.hour(train.times[frames]))
            sums.index_add_(0, hour, values.double() * observed)
            counts.index_add_(0, hour, observed.double())
        means = _fill_hours((sums / counts.clamp(min=1)).numpy(), counts.numpy() > 0)
        self.mean.copy_(torch.from_numpy(_from_neighbours(means, self.nodes)))


def _training_frames(
    windows: Windows, workspace: int
) -> Iterator[tuple[Int64[np.ndarray, " frame"], Values]]:
    """Every frame of the training windows once, in chunks; inputs without hidden values."""
    target, inputs = np.zeros(len(windows.times), bool), np.zeros(len(windows.times), bool)
    past, horizon = windows.time_spec.past, windows.time_spec.horizon
    for step in range(past):
        inputs[windows.starts + step] = True
    for step in range(horizon):
        kept = slice(None) if windows.labels is None else windows.labels[:, step]
        target[windows.starts[kept] + past + step] = True
    nodes = len(windows.fields[0].points) if windows.nodes is None else len(windows.nodes)
    size = max(1, workspace // (nodes * len(windows.fields[0].channels)))
    for read, chosen in ((windows.at, target), (windows.given, inputs & ~target)):
        every = np.flatnonzero(chosen)
        for start in range(0, len(every), size):
            frames = every[start : start + size]
            yield frames, read(frames)


def _fill_hours(
    mean: Float64[np.ndarray, "hour node channel"], present: Bool[np.ndarray, "hour node channel"]
) -> Float64[np.ndarray, "hour node channel"]:
    """Hours without a value, linear between the hours before and after; NaN if there is none."""
    hours = len(mean)
    number = np.arange(3 * hours)[:, None, None]  # yesterday, today and tomorrow
    three, valid = np.tile(mean, (3, 1, 1)), np.tile(present, (3, 1, 1))
    before = np.maximum.accumulate(np.where(valid, number, -1), axis=0)[hours : 2 * hours]
    after = np.minimum.accumulate(np.where(valid, number, 3 * hours)[::-1], axis=0)[::-1]
    after = after[hours : 2 * hours]
    none = ~present.any(0)
    low, high = np.where(none, 0, before), np.where(none, 0, after)
    t = (number[hours : 2 * hours] - low) / np.maximum(high - low, 1)
    filled = np.take_along_axis(three, low, 0) * (1 - t) + np.take_along_axis(three, high, 0) * t
    return np.where(present, mean, np.where(none, np.nan, filled))


def _from_neighbours(
    mean: Float64[np.ndarray, "hour node channel"], nodes: Points
) -> Float64[np.ndarray, "hour node channel"]:
    """Points without a mean get that of the nearest points; 0, the overall mean, if none has."""
    mean = mean.copy()
    for channel in range(mean.shape[2]):
        present = ~np.isnan(mean[0, :, channel])
        if not present.any():
            mean[:, :, channel] = 0.0
        elif not present.all():
            some, others = np.flatnonzero(present), np.flatnonzero(~present)
            near, weight = _interpolation(nodes.take(some), nodes.take(others))
            mean[:, others, channel] = (mean[:, some[near], channel] * weight).sum(-1)
    return mean


def _interpolation(
    nodes: Points, queries: Points
) -> tuple[Int64[np.ndarray, "query near"], Float64[np.ndarray, "query near"]]:
    """The nearest nodes and weights that sum to 1; a query that is a node has that node only."""
    distance, index = nearest_nodes(queries, nodes, INTERPOLATION_NODES)
    weight = 1.0 / np.maximum(distance, 1e-9) ** 2
    own = own_nodes(queries, nodes)
    itself = own < len(nodes)
    index[itself, 0], weight[itself] = own[itself], np.arange(index.shape[1]) == 0
    return index, weight / weight.sum(1, keepdims=True)
