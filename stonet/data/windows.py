"""From Fields to past/future windows: splits, batches and the frames that windows share.

Nothing is copied until a batch is made. Which windows a step sees is a pure function of
(seed, epoch, step), so that a resumed run and a run on more processes see the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

from stonet.data.field import Dataset, Field
from stonet.data.scaling import Scaler
from stonet.data.solar_position import sun_direction
from stonet.data.splits import chronological
from stonet.data.time_spec import Clock
from stonet.errors import DataError
from stonet.system.devices import sent

PARTS = ("train", "validation", "test")
MANY_EPISODES = 10  # from here on, whole episodes are held out instead of the end of each
Values = tuple[Float[Tensor, "frame node channel"], Bool[Tensor, "frame node channel"]]
SPARSE = 0.5  # share of the nodes below which single ones are read instead of whole frames
NEAR = 1e-3  # of a step: what counts as a whole one
MAX_STRETCH = 1.25  # a window with gaps may take this much longer than a regular one


@dataclass(frozen=True)
class Silence:
    """Which nodes have no value at all in a window: what decides how their gaps are dealt with."""

    some: bool  # there are such nodes
    gaps: bool  # others lack some of their values only
    same_channels: bool  # they are silent in all channels or in none
    same_windows: tuple[bool, ...]  # they are the same in every window, for each channel


@dataclass(frozen=True)
class Batch:
    """Windows ready for a model: normalised values, times in steps from the issue time.

    A window's inputs are `frames[past]`: a frame that several windows see is there once. Where all
    windows have the same times, `lag` and `lead` have one row for all.

    What decides which way a computation goes is looked up in the host's memory (`at_hand`): nobody
    waits for a GPU to tell. A batch that was changed on a GPU has no such copy any more.
    """

    frames: Float[Tensor, "frame node channel"]  # 0 where missing
    observed: Bool[Tensor, "frame node channel"] | None  # None: every value was observed
    frame_time: Float[Tensor, "frame feature"]
    past: Int[Tensor, "batch past"]
    lag: Float[Tensor, "rows past"]  # of the inputs, in steps; 0 is the issue time
    lead: Float[Tensor, "rows future"]  # of the targets, in steps
    future_time: Float[Tensor, "batch future calendar"]
    issue_time: Float[Tensor, "batch calendar"]
    hour: Int[Tensor, " batch"]  # of the day, at the issue time
    sun: Float[Tensor, "batch knot 3"] | None = None  # at whole steps around the issue time
    host: Batch | None = None  # the same in the host's memory; None: this one is there

    def to(self, device: torch.device) -> Batch:
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        moved = {k: sent(v, device) for k, v in parts.items() if isinstance(v, Tensor)}
        if device.type == "cpu":
            return replace(self, **moved, host=None)
        assert self.silence is not None  # found here, by the thread that feeds
        return replace(self, **moved, host=self.at_hand)

    @property
    def at_hand(self) -> Batch:
        """The same in the host's memory."""
        return self if self.host is None else self.host

    @cached_property
    def known(self) -> Bool[Tensor, "batch node channel"]:
        """Whether a node has any value in a window, by channel."""
        return self.seen[self.past].any(1)

    def odd(self, past: int) -> Bool[Tensor, " rows"]:
        """Which windows have other inputs than so many, a step apart; told in the host's memory."""
        lag = self.at_hand.lag
        steps = torch.arange(1 - past, 1) if lag.shape[1] == past else torch.tensor(torch.inf)
        return ((lag - steps).abs() >= NEAR).any(1)

    def regular(self, past: int) -> bool:
        """Whether all windows have so many inputs, a step apart."""
        return not bool(self.odd(past).any())

    def gaps(self, past: int) -> Float[Tensor, "batch node"] | None:
        """The share of a node's whole steps to be filled, if it has any value; None: none."""
        if self.regular(past) and not self.silence.gaps:
            return None
        whole = ((self.lag - self.lag.round()).abs() < NEAR) & (self.lag > 0.5 - past)
        there = (self.seen[self.past] & whole[:, :, None, None]).sum(1)
        return ((past - there) * self.known).to(self.frames.dtype).mean(-1) / past

    @property
    def late(self) -> Bool[Tensor, "batch node"]:
        """Whether a node lacks its newest values, in all the channels in which it has others."""
        last = self.seen[self.past[:, -1]]
        return ~last.any(-1) & self.known.any(-1)

    @cached_property
    def silence(self) -> Silence:
        """Who has none, decided in the host's memory."""
        if self.host is not None:
            return self.host.silence
        if self.observed is None:
            return Silence(False, False, True, (True,) * self.frames.shape[2])
        known = self.known
        return Silence(
            some=not bool(known.all()),
            gaps=bool((self.observed[self.past] != known[:, None]).any()),
            same_channels=bool((known == known[..., :1]).all()),
            same_windows=tuple((known == known[:1]).flatten(0, 1).all(0).tolist()),
        )

    @property
    def seen(self) -> Bool[Tensor, "frame node channel"]:
        """`observed`, never None."""
        everything = torch.ones_like(self.frames, dtype=torch.bool)
        return everything if self.observed is None else self.observed

    def newest(self, count: int) -> Batch:
        """The same with so many of each window's inputs, the latest ones; the rest is gone."""
        if count >= self.past.shape[1]:
            return self
        there = self.frames.device
        found = torch.unique(self.at_hand.past[:, -count:], return_inverse=True)
        used, position = (sent(part, there) for part in found)
        return replace(
            self,
            frames=self.frames[used],
            observed=None if self.observed is None else self.observed[used],
            frame_time=self.frame_time[used],
            past=position,
            lag=self.lag[:, -count:],
            host=None,
        )

    def recent(self, count: int) -> Batch:
        """As `newest`, with all the frames, so that nothing has to be copied."""
        return replace(
            self,
            past=self.past[:, -count:],
            lag=self.lag[:, -count:],
            host=None if self.host is None else self.host.recent(count),
        )

    @property
    def present(self) -> Bool[Tensor, "frame node"] | None:
        """Whether a node has any value in a frame; None: all have."""
        return None if self.observed is None else self.observed.any(-1)


@dataclass(frozen=True)
class Windows:
    """All windows of some episodes: `starts` are positions of their first frames.

    Values stay where they are, on disk perhaps, until a batch asks for its frames.
    """

    fields: tuple[Field, ...]  # the episodes, in their own units; positions count through them
    scaler: Scaler
    times: Int64[np.ndarray, " time"]
    starts: Int64[np.ndarray, " window"]
    clock: Clock
    window_time: bool = False  # inputs also tell their position in the window; then none is shared
    nodes: Int64[np.ndarray, " node"] | None = None  # positions of the points; None: all of them
    labels: Bool[np.ndarray, "window future"] | None = None  # targets that are given; None: all
    hidden: Bool[np.ndarray, "time node"] | None = None  # inputs that are not given; None: none

    def __len__(self) -> int:
        return len(self.starts)

    def at(self, index: Int64[np.ndarray, " frame"]) -> Values:
        """Frames by their positions, normalised, 0 where missing; and where they were observed."""
        if len(self.fields) == 1:
            values, observed = (self._read(part, index) for part in _parts(self.fields[0]))
        else:
            ends = np.cumsum([len(field.times) for field in self.fields])
            owner = np.searchsorted(ends, index, side="right")
            nodes, channels = self.fields[0].values.shape[1:]
            count = nodes if self.nodes is None else len(self.nodes)
            values = np.empty((len(index), count, channels), np.float32)
            observed = np.empty(values.shape, bool)
            for number in np.unique(owner):
                mine, field = owner == number, self.fields[number]
                place = index[mine] - (ends[number] - len(field.times))
                values[mine], observed[mine] = (self._read(p, place) for p in _parts(field))
        values = self.scaler.normalise(values) * observed
        return torch.from_numpy(values), torch.from_numpy(np.ascontiguousarray(observed))

    def _read(self, stored: np.ndarray, index: Int64[np.ndarray, " frame"]) -> np.ndarray:
        """Frames at the nodes; where these are few, nothing else is read."""
        if self.nodes is None:
            return stored[index]
        few = len(self.nodes) < SPARSE * stored.shape[1]
        return stored[index[:, None], self.nodes] if few else stored[index][:, self.nodes]

    def given(self, index: Int64[np.ndarray, " frame"]) -> Values:
        """As `at`, without what is hidden from the inputs."""
        values, observed = self.at(index)
        if self.hidden is None:
            return values, observed
        shown = torch.from_numpy(~self.hidden[index])[..., None]
        return values * shown, observed & shown

    def take(self, index: Int64[np.ndarray, " chosen"]) -> Windows:
        """The same windows at some of their nodes."""
        nodes = index if self.nodes is None else self.nodes[index]
        hidden = None if self.hidden is None else self.hidden[:, index]
        return replace(self, nodes=nodes, hidden=hidden)

    def thin(self, most: int) -> Windows:
        """At most that many windows, evenly spread."""
        if len(self) <= most:
            return self
        return self._only(np.linspace(0, len(self) - 1, most).round().astype(np.int64))

    def draw(self, most: int) -> Windows:
        """At most that many windows, at random: an even spread may meet few hours of the day."""
        if len(self) <= most:
            return self
        return self._only(np.sort(np.random.default_rng(most).permutation(len(self))[:most]))

    def _only(self, chosen: Int64[np.ndarray, " chosen"]) -> Windows:
        labels = None if self.labels is None else self.labels[chosen]
        return replace(self, starts=self.starts[chosen], labels=labels)

    def inputs(self, chosen: Int64[np.ndarray, " batch"]) -> Batch:
        """What a model may see of these windows."""
        clock = self.clock
        past = self.starts[chosen][:, None] + np.arange(clock.past)
        future = self.starts[chosen][:, None] + clock.past + np.arange(clock.horizon)
        return make_batch(self.given, self.times, past, self.times[future], clock, self.window_time)

    def targets(
        self, chosen: Int64[np.ndarray, " batch"]
    ) -> tuple[
        Float[Tensor, "batch future node channel"], Bool[Tensor, "batch future node channel"]
    ]:
        """What came after, and where it was observed."""
        future = self.starts[chosen][:, None] + self.clock.past + np.arange(self.clock.horizon)
        values, observed = (part.unflatten(0, future.shape) for part in self.at(future.ravel()))
        if self.labels is not None:
            observed = observed & torch.from_numpy(self.labels[chosen])[:, :, None, None]
        return values, observed

    def order(
        self, batch: int, run: int, seed: int, epoch: int
    ) -> list[Int64[np.ndarray, " batch"]]:
        """The epoch's batches: shuffled runs of `run` consecutive windows, full batches only."""
        generator = np.random.default_rng((seed, epoch))
        run = self._run(batch, run)
        first = int(generator.integers(run))  # so that runs begin elsewhere in each epoch
        starts = np.arange(first, len(self) - run + 1, run)
        shuffled = (generator.permutation(starts)[:, None] + np.arange(run)).ravel()
        count = self.batches(batch, run)
        return [shuffled[i * batch : (i + 1) * batch] for i in range(count)]

    def batches(self, batch: int, run: int) -> int:
        """How many batches every epoch has, wherever its runs begin."""
        run = self._run(batch, run)
        return max(1, (len(self) - run + 1) // run * run // batch)

    def _run(self, batch: int, run: int) -> int:
        """Few windows are taken one by one: whole runs would leave too many of them out."""
        return min(run, batch) if len(self) >= 2 * batch else 1


def hide_values(batch: Batch, share: float, seed: int) -> Batch:
    """The batch with so many of its nodes' values missing, here and there."""
    shape = batch.frames.shape[:2]
    kept = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) >= share
    seen = batch.seen & kept[..., None]
    return replace(batch, frames=batch.frames * seen, observed=seen)


def in_batches(windows: Windows, size: int) -> list[Int64[np.ndarray, " batch"]]:
    """All windows in their order, `size` at a time."""
    return [np.arange(s, min(s + size, len(windows))) for s in range(0, len(windows), size)]


def _parts(field: Field) -> tuple[np.ndarray, np.ndarray]:
    return field.values, field.observed


def make_batch(
    frames: Callable[[Int64[np.ndarray, " frame"]], Values],
    times: Int64[np.ndarray, " time"],
    past: Int64[np.ndarray, "batch past"],
    ask: Int64[np.ndarray, "batch future"],
    clock: Clock,
    window_time: bool,
) -> Batch:
    """The batch of windows that see the frames `past` and are asked for the times `ask`."""
    issue = times[past[:, -1]]
    lag, lead = clock.steps(times[past] - issue[:, None]), clock.steps(ask - issue[:, None])
    if window_time:
        used, position = past.ravel(), np.arange(past.size).reshape(past.shape)
    else:
        used, position = np.unique(past, return_inverse=True)
        position = position.reshape(past.shape)
    features = [clock.calendar_features(times[used])]
    if window_time:
        features.append(lag.reshape(-1, 1) / clock.horizon)
    if (lag == lag[:1]).all() and (lead == lead[:1]).all():
        lag, lead = lag[:1], lead[:1]
    values, seen = frames(used)
    return Batch(
        frames=values,
        observed=None if bool(seen.all()) else seen,
        frame_time=torch.from_numpy(np.concatenate(features, axis=-1)),
        past=torch.from_numpy(position),
        lag=torch.from_numpy(lag),
        lead=torch.from_numpy(lead),
        future_time=torch.from_numpy(clock.calendar_features(ask)),
        issue_time=torch.from_numpy(clock.calendar_features(issue)),
        hour=torch.from_numpy(clock.hour(issue)),
        sun=torch.from_numpy(sun_direction(issue[:, None] + clock.around)) if clock.sunny else None,
    )


def split(
    dataset: Dataset, clock: Clock, shares: tuple[float, float, float], stride: int = 1
) -> dict[str, tuple[Field, ...]]:
    """Training, validation and test parts: whole episodes, or consecutive times of a single one.

    Where windows do not overlap (a long `stride`), whole windows are shared out.
    """
    if abs(sum(shares) - 1) > 1e-6 or min(shares) < 0 or 0 in shares[:2]:
        raise DataError(
            f"Shares {shares} must be parts of 1 with some training and some validation, "
            "e.g. (0.7, 0.1, 0.2)."
        )
    episodes = dataset.episodes
    need = clock.past + clock.horizon
    whole = len(episodes) >= MANY_EPISODES
    parts: dict[str, list[Field]] = {part: [] for part in PARTS}
    if whole:
        for part, (start, stop) in zip(PARTS, chronological(shares, len(episodes)), strict=True):
            parts[part] = [e for e in episodes[start:stop] if len(e.times) >= need]
    for episode in () if whole else episodes:
        unit = stride if stride >= need else 1
        length = (len(episode.times) - need) // unit + 1 if unit > 1 else len(episode.times)
        for part, (start, stop) in zip(PARTS, chronological(shares, max(length, 0)), strict=True):
            if (stop - start) * unit >= need:
                last = min(stop * unit, len(episode.times))
                parts[part].append(episode.between(start * unit, last))
    empty = [(s, part) for part, s in zip(PARTS, shares, strict=True) if s and not parts[part]]
    if empty:
        share, part = min(empty)  # the one that asks for the longest series
        longest = max(len(episode.times) for episode in episodes)
        have, much = (
            (f"{len(episodes)} episodes, the longest of {longest} frames", need)
            if whole
            else (f"{longest} frames", int(np.ceil(need / share)))
        )
        raise DataError(
            f"The series is too short: its {part} part ({share:.0%} of {have}) is shorter than one "
            f"window of {clock.past} + {clock.horizon} frames. Give at least {much} frames, or "
            "shorten data.past or data.horizon, or change data.split."
        )
    return {part: tuple(fields) for part, fields in parts.items()}


def cut(
    fields: tuple[Field, ...],
    scaler: Scaler,
    clock: Clock,
    stride: int = 1,
    window_time: bool = False,
    nodes: Int64[np.ndarray, " node"] | None = None,
) -> Windows:
    """All windows of the fields, `stride` frames apart; none crosses a field's end."""
    need = clock.past + clock.horizon
    starts, offset = [np.zeros(0, dtype=np.int64)], 0
    for field in fields:
        first = np.arange(0, max(0, len(field.times) - need + 1), stride)
        span = field.times[first + need - 1] - field.times[first] if len(first) else first
        starts.append(offset + first[span <= MAX_STRETCH * (need - 1) * clock.step])
        offset += len(field.times)
    joined = np.concatenate(starts)
    if not len(joined):
        raise DataError(
            f"No window of {clock.past} + {clock.horizon} frames without a long gap fits into "
            f"{len(fields)} episodes (longest: {max((len(f.times) for f in fields), default=0)} "
            f"frames, usual step {clock.step / 1e9:g} s). Give more data or shorten data.past or "
            "data.horizon."
        )
    times = np.concatenate([f.times for f in fields])
    return Windows(fields, scaler, times, joined, clock, window_time, nodes)
