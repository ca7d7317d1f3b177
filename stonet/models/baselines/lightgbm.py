r"""LightGBM: gradient-boosted trees, the first choice of many practitioners for tables.

One model for all nodes forecasts the change since the newest value, in one step for every lead,

    u(x, t0 + lead) = u(x, t0) + f_c(features of x and t0, features of x and t0 + lead)

where f_c is a sum of trees for each channel c. Features of x and t0 are the past values of x and
their means, those of the nearest node in each of eight directions, and of the other channels, all
relative to the newest value; place and calendar; and the site's mean at this hour. Features of the
lead are its number, calendar, sun, the site's mean at that hour, and the value a day before. The
trees deal with missing values themselves.

The trees minimise the absolute error, as the other models do. Candidates differ in the number of
leaves, and in whether all leads share their trees. They compete in a part of the budget
(`train.race`), and the best grows on. The number of trees is that of the lowest validation error.
In a budget of epochs, an epoch is `train.steps` trees, or EPOCH_ROUNDS. The library `lightgbm`
(extra `peers`) grows the trees (`boosting.py`); forecasts do not need it, since the trees are
stored as arrays (`forest.py`).

References:
    G. Ke, Q. Meng, T. Finley, T. Wang, W. Chen, W. Ma, Q. Ye, T.-Y. Liu, "LightGBM: A Highly
    Efficient Gradient Boosting Decision Tree", NeurIPS 2017.

Deviations:
    - None in the trees. The paper has no features of its own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from stonet.config import Config
from stonet.data.durations import DAY
from stonet.data.geometry import Points
from stonet.data.resampling import on_leads
from stonet.data.time_spec import TimeSpec
from stonet.data.windows import Windows
from stonet.errors import UsageError
from stonet.graph.neighbours import nearest_nodes
from stonet.models.baselines.base import BaselineNodes, BaselineQueries, GraphBaseline, Inputs
from stonet.models.baselines.boosting import Candidate, Limit, Rows, Tree, library_of_trees, race
from stonet.models.baselines.climatology import Climatology
from stonet.models.baselines.forest import MAX_LEAVES, Forest, tree_arrays
from stonet.models.forecaster import Graphs, Supervision, narrow

DIRECTIONS = 8  # sectors around a node, in each of which the nearest node is a neighbour
SEARCHED = 32  # nearest nodes among which these neighbours are searched
NEIGHBOUR_LAGS, MEAN_LAGS = 3, 6  # newest values of each neighbour, and of their mean
OTHER_LAGS = 3  # newest values of the other channels
RECENT_LAGS, OLDER_LAGS = 12, 12  # all newest values of x, and so many older ones
SPANS = (3, 6, 12)  # newest steps over which values of x are averaged, beside the complete past
CANDIDATES = ((61, 1), (61, 3), (24, 1))  # leaves, groups of leads
RATE = 0.15  # first learning rate, unless train.lr is given
EPOCH_ROUNDS = 50  # trees of an epoch, where epochs are counted and their steps are not given
RESERVE = 0.1  # share of the minutes that is left for the common validation at the end
ROWS_PER_SECOND, MIN_ROWS, MAX_ROWS = 6_000, 50_000, 1_500_000  # of the budget of a channel
VALIDATION_SHARE = 0.15  # rows of the validation part, relative to those of the training part
MAX_WINDOWS = 2_048  # from which rows are drawn
CHUNK_POINTS = 2**15  # points of the windows that are prepared together


@dataclass(frozen=True)
class Around:
    """The neighbours of each node, and the means at its site.

    Args:
        near: the nearest node in each direction; number of nodes if there is none.
        mean: by hour of the day, or one for all times.
    """

    near: Int64[np.ndarray, "node direction"]
    mean: Float[np.ndarray, "hour node channel"]


class LightGBM(GraphBaseline[Around]):
    """Gradient-boosted trees; `baseline.hidden` is their number of leaves, raced if not given."""

    default_past = None
    unit: Tensor
    group: Tensor

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__(config, time_spec, channels, nodes)
        leaves, horizon, past = self.baseline.hidden, time_spec.horizon, self.time_spec.past
        if leaves is not None and not 2 <= leaves <= MAX_LEAVES:
            raise UsageError(
                f"baseline.hidden is the number of leaves of LightGBM's trees, from 2 to "
                f"{MAX_LEAVES}; it is {leaves}."
            )
        if config.train.final:
            raise UsageError(
                "LightGBM chooses the number of its trees on the validation part and cannot be "
                "refitted on both: leave train.final (--final) out."
            )
        self.train_config = config.train
        chosen = [
            Candidate(leaves or most, min(groups, horizon), config.train.lr or RATE)
            for most, groups in CANDIDATES
        ]
        self.contenders = tuple(dict.fromkeys(chosen))
        self.register_buffer("unit", torch.ones(()))  # first of all: gives graphs their precision
        self.register_buffer("group", torch.zeros(horizon, dtype=torch.int64))  # of each lead
        self.climatology = Climatology(config, time_spec, channels, nodes)
        self.lags, self.day = used_lags(past), day_lags(self.time_spec)
        place, sun = (self.axes.width, int(time_spec.sunny)) if self.axes else (0, 0)
        self.place_width = place
        own = 1 + len(self.lags) + len(SPANS) + 2
        around = (DIRECTIONS * NEIGHBOUR_LAGS + MEAN_LAGS) + OTHER_LAGS * (channels - 1)
        self.widths = (
            own + around + self.calendar_width + place + sun + 1,
            (1 + self.calendar_width + sun + 2 + (self.day is not None)),
        )
        self.forest = Forest(horizon * channels, sum(self.widths))

    def operators(self, nodes: Points) -> Around:
        """Neighbours in all directions, and the climatology of these nodes."""
        table = self.climatology.query_graph(nodes, nodes)
        mean = (self.climatology.mean[:, table.near] * table.weight[..., None]).sum(2)
        return Around(neighbours_by_direction(nodes), mean.to(self.unit.dtype).cpu().numpy())

    @torch.no_grad()
    def forecast_nodes(
        self, inputs: Inputs, operators: Around, supervision: Supervision | None
    ) -> Float[Tensor, "batch future node channel"]:
        """The newest value, or nothing with a base, and the trees of each lead and channel."""
        last, group = inputs.last, self.group.cpu().numpy()
        batch, nodes = last.shape[:2]
        result = np.zeros((len(group), batch, nodes, self.channels))
        for channel in range(self.channels):
            shared = self._shared(inputs, operators, channel)
            own = self._own(inputs, operators, channel)
            for number in np.unique(group):
                leads = np.flatnonzero(group == number)
                grown = self.forest.predict(
                    int(number) * self.channels + channel, shared, own[leads]
                )
                result[leads, ..., channel] = grown.reshape(-1, batch, nodes)
        change = torch.from_numpy(result).to(last).transpose(0, 1)
        return change if self.base is not None else last[:, None] + change

    @torch.no_grad()
    def fit_closed_form(self, train: Windows, validation: Windows, nodes: Points) -> None:
        """Fit the base and the climatology, then grow the trees of all channels.

        Raises:
            UsageError: if the package lightgbm is not installed.
            DataError: if a part has no observed target.
        """
        library_of_trees()  # missing: said before the base is fitted
        started = time.process_time()
        super().fit_closed_form(train, validation, nodes)
        self.climatology.fit_closed_form(train, validation, nodes)
        graphs, config = self.graphs(nodes), self.train_config
        minutes = config.minutes
        rounds = config.epochs * (config.steps or EPOCH_ROUNDS)
        seconds = rounds if minutes is None else 60 * minutes * (1 - RESERVE)
        count = int(np.clip(ROWS_PER_SECOND * seconds / self.channels, MIN_ROWS, MAX_ROWS))
        trees: list[tuple[int, Tree]] = []
        contenders = self.contenders
        for channel in range(self.channels):
            rows = self._rows(train, graphs, channel, count)
            checked = self._rows(validation, graphs, channel, int(VALIDATION_SHARE * count))
            left = (seconds - (time.process_time() - started)) / (self.channels - channel)
            amount = float(rounds) if minutes is None else max(left, 0.0)
            limit = Limit(amount, timed=minutes is not None)
            threads, seed = torch.get_num_threads(), config.seed
            growth = race(rows, checked, contenders, limit, config.race, seed, threads)
            contenders = (growth.candidate,)  # all channels have the same groups
            for number, grown in enumerate(growth.trees()):
                trees += [(number * self.channels + channel, tree) for tree in grown]
        self.group.copy_(torch.from_numpy(contenders[0].group(len(self.group))))
        self.forest.set(tree_arrays(trees))

    def _rows(self, windows: Windows, graphs: Graphs, channel: int, count: int) -> Rows:
        """Random points, leads and windows whose target was observed."""
        graph = narrow(graphs.nodes, BaselineNodes)
        stencil = narrow(graphs.queries, BaselineQueries).stencil
        some = windows.draw(min(MAX_WINDOWS, max(1, count)))
        size = max(1, CHUNK_POINTS // len(graph.sites.place))
        generator = np.random.default_rng(self.train_config.seed)
        parts = []
        for start in range(0, len(some), size):
            chosen = np.arange(start, min(start + size, len(some)))
            batch, (target, mask) = some.inputs(chosen), some.targets(chosen)
            inputs = self._with_extras(self._inputs(batch, graph.mean), batch, graph.sites)
            y, scale = target - inputs.last[:, None], torch.ones_like(target)
            if stencil is not None:
                base, scale = self._base(batch, stencil)
                y = (target - base) / scale
            mask = mask & on_leads(batch.lead)[:, :, None, None]
            valid = np.flatnonzero(mask[..., channel].transpose(0, 1).numpy())
            share = min(1.0, count / len(some) * len(chosen) / max(len(valid), 1))
            valid = valid[generator.random(len(valid)) < share]
            lead, point = np.divmod(valid, len(chosen) * target.shape[2])
            shared = self._shared(inputs, graph.operators, channel)[point]
            own = self._own(inputs, graph.operators, channel)[lead, point]
            y, scale = (a[..., channel].transpose(0, 1).reshape(-1)[valid] for a in (y, scale))
            x = np.concatenate([shared, own], axis=1).astype(np.float32)
            parts.append(Rows(x, y.double().numpy(), scale.double().numpy(), lead))
        names = ("x", "y", "weight", "lead")
        return Rows(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def _shared(
        self, inputs: Inputs, around: Around, channel: int
    ) -> Float[np.ndarray, "point feature"]:
        """Features of a node at the issue time; a point is a window and a node."""
        every = inputs.past[..., : self.channels].flip(1)  # newest first
        newest = every[:, :1, :, channel].numpy()
        if inputs.imputed is not None:
            every = torch.where(inputs.imputed.flip(1), torch.nan, every)
        values = every.cpu().numpy()
        own = values[..., channel] - newest  # batch lag node
        means = [mean_of_known(own[:, :span], 1) for span in (*SPANS, own.shape[1])]
        spread = np.sqrt(mean_of_known((own - means[-1][:, None]) ** 2, 1))
        near = np.pad(own + newest, ((0, 0), (0, 0), (0, 1)), constant_values=np.nan)
        near = near[:, :MEAN_LAGS, around.near] - newest[..., None]  # batch lag node direction
        near = _padded(near, MEAN_LAGS)
        others = np.delete(values, channel, axis=3)[:, :OTHER_LAGS]
        known = inputs.past[:, -1, :, self.channels :].cpu().numpy()
        known = known[..., : self.calendar_width + self.place_width + bool(self.ahead_sun)]
        site = around.mean[self._hour(inputs, np.zeros(1))][:, 0, :, channel]
        parts = [
            newest[:, 0, :, None],
            np.moveaxis(own[:, self.lags], 1, -1),
            np.stack([*means, spread], axis=-1),
            np.moveaxis(near[:, :NEIGHBOUR_LAGS], 1, -1).reshape(
                *near.shape[:1], near.shape[2], -1
            ),
            np.moveaxis(mean_of_known(near, 3), 1, -1),
            np.moveaxis(_padded(others, OTHER_LAGS), 1, -1).reshape(*known.shape[:2], -1),
            known,
            (site - newest[:, 0])[..., None],
        ]
        joined = np.concatenate(parts, axis=-1)
        return joined.reshape(-1, joined.shape[-1])

    def _own(
        self, inputs: Inputs, around: Around, channel: int
    ) -> Float[np.ndarray, "lead point feature"]:
        """Features of a node at each lead."""
        newest = inputs.last[..., channel].cpu().numpy()
        ahead = inputs.ahead().cpu().numpy()  # batch lead node feature
        place = slice(self.calendar_width, self.calendar_width + self.place_width)
        leads = np.arange(1, ahead.shape[1] + 1)
        hours = self._hour(inputs, np.append(0, leads))
        site = around.mean[hours][..., channel]  # batch lead node
        number = np.broadcast_to(leads[None, :, None, None], (*ahead.shape[:3], 1))
        parts = [
            number.astype(ahead.dtype),
            np.delete(ahead, np.r_[place], axis=-1),
            (site[:, 1:] - newest[:, None])[..., None],
            (site[:, 1:] - site[:, :1])[..., None],
        ]
        if self.day is not None:
            past = inputs.past[..., channel].flip(1)
            if inputs.imputed is not None:
                past = torch.where(inputs.imputed[..., channel].flip(1), torch.nan, past)
            before = np.pad(past.cpu().numpy(), ((0, 0), (0, 1), (0, 0)), constant_values=np.nan)
            parts.append((before[:, self.day] - newest[:, None])[..., None])
        joined = np.concatenate(parts, axis=-1).swapaxes(0, 1)
        return joined.reshape(len(leads), -1, joined.shape[-1])

    @property
    def ahead_sun(self) -> int:
        """Number of features of the sun at a lead."""
        return self.ahead_width - self.calendar_width - self.place_width

    def _hour(self, inputs: Inputs, leads: np.ndarray) -> Int64[np.ndarray, "batch lead"]:
        """The hour of the day at some leads, or 0; from the calendar, whose last cycle is a day."""
        if not self.time_spec.daily:
            return np.zeros((len(inputs.past), len(leads)), np.int64)
        phase = inputs.past[:, -1, 0, self.channels : self.channels + self.calendar_width].cpu()
        sine, cosine = phase[:, self.time_spec.features - 1].double(), phase[:, -1].double()
        day = torch.atan2(sine, cosine).numpy()[:, None] / (2 * np.pi)
        hours = 24 * (day + leads * self.time_spec.step / DAY)
        return np.floor(hours + 1e-3).astype(np.int64) % 24


def used_lags(past: int) -> Int64[np.ndarray, " lag"]:
    """All recent lags, and some older ones.

    Args:
        past: number of steps.
    """
    recent = np.arange(min(past, RECENT_LAGS))
    older = np.linspace(RECENT_LAGS, past - 1, OLDER_LAGS if past > RECENT_LAGS else 0).round()
    return np.unique(np.append(recent, older).astype(np.int64))


def day_lags(time_spec: TimeSpec) -> Int64[np.ndarray, " lead"] | None:
    """The lag of the value a day, or several, before each lead; `past` if there is none.

    None without hours, or if no lead has one.

    Args:
        time_spec: step, past and horizon.
    """
    if not time_spec.daily or DAY % time_spec.step:
        return None
    day, lead = DAY // time_spec.step, np.arange(1, time_spec.horizon + 1)
    lag = -(-lead // day) * day - lead
    return np.minimum(lag, time_spec.past) if (lag < time_spec.past).any() else None


def neighbours_by_direction(nodes: Points) -> Int64[np.ndarray, "node direction"]:
    """The nearest other node in each of the directions; number of nodes if none is near.

    Args:
        nodes: points with values.
    """
    index = nearest_nodes(nodes, nodes, SEARCHED + 1)[1]
    x = nodes.embedded
    offset = nodes.geometry.offset(np.repeat(x[:, None], index.shape[1], axis=1), x[index])
    turn = np.arctan2(offset[..., 1], offset[..., 0]) / (2 * np.pi) + 0.5 / DIRECTIONS
    sector = np.floor(DIRECTIONS * (turn % 1.0)).astype(np.int64) % DIRECTIONS
    other = index != np.arange(len(nodes))[:, None]
    result = np.full((len(nodes), DIRECTIONS), len(nodes))
    for direction in range(DIRECTIONS):
        fits = other & (sector == direction)
        first = fits.argmax(1)  # nearest first
        some = np.flatnonzero(fits.any(1))
        result[some, direction] = index[some, first[some]]
    return result


def mean_of_known(x: Float[np.ndarray, "..."], axis: int) -> Float[np.ndarray, "..."]:
    """The mean of values that are not NaN; NaN if there is none.

    Args:
        x: values.
        axis: over which they are averaged.
    """
    known = ~np.isnan(x)
    count = known.sum(axis)
    total = np.where(known, x, 0).sum(axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(x.dtype)


def _padded(x: np.ndarray, lags: int) -> np.ndarray:
    """(batch, lag, ...) with so many lags: those before the past are missing."""
    short = lags - x.shape[1]
    widths = [(0, 0), (0, short), *[(0, 0)] * (x.ndim - 2)]
    return np.pad(x, widths, constant_values=np.nan) if short > 0 else x
