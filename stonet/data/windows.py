"""From Fields to past/future windows: splits, batches and the frames that windows share.

Nothing is copied until a batch is made. The windows of a step are a pure function of
(seed, epoch, step), so that a resumed run and a run on several processes use the same windows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from stonet.data.batch import Batch, Values, make_batch
from stonet.data.field import Dataset, Field
from stonet.data.scaling import Scaler
from stonet.data.splits import chronological
from stonet.data.time_spec import TimeSpec
from stonet.errors import DataError

PARTS = ("train", "validation", "test")
MANY_EPISODES = 10  # with at least so many, complete episodes are held out
SPARSE = 0.5  # share of the nodes below which single nodes are read instead of complete frames
MAX_STRETCH = 1.25  # a window with gaps may take this much longer than a regular one


@dataclass(frozen=True)
class Windows:
    """All windows of some episodes: `starts` are positions of their first frames.

    Values are read, from disk if need be, when a batch is made.

    Args:
        fields: the episodes, in their own units; positions count through them.
        scaler: normalises the values when they are read.
        times: of the frames of all episodes, in nanoseconds.
        starts: position of the first frame of each window.
        time_spec: lengths of inputs and targets.
        nodes: positions of the points; None: all of them.
        labels: targets that are given; None: all.
        hidden: inputs that are not given; None: none.
    """

    fields: tuple[Field, ...]
    scaler: Scaler
    times: Int64[np.ndarray, " time"]
    starts: Int64[np.ndarray, " window"]
    time_spec: TimeSpec
    nodes: Int64[np.ndarray, " node"] | None = None
    labels: Bool[np.ndarray, "window future"] | None = None
    hidden: Bool[np.ndarray, "time node"] | None = None

    def __len__(self) -> int:
        return len(self.starts)

    def at(self, index: Int64[np.ndarray, " frame"]) -> Values:
        """Frames by their positions, normalised, 0 where missing; and where they were observed.

        Args:
            index: positions through all episodes.
        """
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
                own, field = owner == number, self.fields[number]
                position = index[own] - (ends[number] - len(field.times))
                values[own], observed[own] = (self._read(p, position) for p in _parts(field))
        values = self.scaler.normalise(np.where(observed, values, np.float32(0))) * observed
        return torch.from_numpy(values), torch.from_numpy(np.ascontiguousarray(observed))

    def _read(self, stored: np.ndarray, index: Int64[np.ndarray, " frame"]) -> np.ndarray:
        """Frames at the nodes; if these are few, only their values are read."""
        if self.nodes is None:
            return stored[index]
        few = len(self.nodes) < SPARSE * stored.shape[1]
        return stored[index[:, None], self.nodes] if few else stored[index][:, self.nodes]

    def given(self, index: Int64[np.ndarray, " frame"]) -> Values:
        """As `at`, without values that are hidden from the inputs or far outside the range.

        Args:
            index: positions through all episodes.
        """
        values, observed = self.at(index)
        far = self.scaler.far_normalised(values)
        if far is not None:  # an instrument error
            observed = observed & ~far
            values = values * observed
        if self.hidden is None:
            return values, observed
        shown = torch.from_numpy(~self.hidden[index])[..., None]
        return values * shown, observed & shown

    def take(self, index: Int64[np.ndarray, " chosen"]) -> Windows:
        """The same windows at some of their nodes.

        Args:
            index: positions among the nodes of these windows.
        """
        nodes = index if self.nodes is None else self.nodes[index]
        hidden = None if self.hidden is None else self.hidden[:, index]
        return replace(self, nodes=nodes, hidden=hidden)

    def thin(self, most: int) -> Windows:
        """At most `most` windows, evenly spaced.

        Args:
            most: number of windows to keep.
        """
        if len(self) <= most:
            return self
        return self._only(np.linspace(0, len(self) - 1, most).round().astype(np.int64))

    def draw(self, most: int) -> Windows:
        """At most `most` windows at random; even spacing may alias with the daily cycle.

        Args:
            most: number of windows to keep; also the seed.
        """
        if len(self) <= most:
            return self
        return self._only(np.sort(np.random.default_rng(most).permutation(len(self))[:most]))

    def _only(self, chosen: Int64[np.ndarray, " chosen"]) -> Windows:
        labels = None if self.labels is None else self.labels[chosen]
        return replace(self, starts=self.starts[chosen], labels=labels)

    def inputs(self, chosen: Int64[np.ndarray, " batch"]) -> Batch:
        """The inputs of these windows.

        Args:
            chosen: positions of windows.
        """
        time_spec = self.time_spec
        past = self.starts[chosen][:, None] + np.arange(time_spec.past)
        future = self.starts[chosen][:, None] + time_spec.past + np.arange(time_spec.horizon)
        return make_batch(self.given, self.times, past, self.times[future], time_spec)

    def targets(
        self, chosen: Int64[np.ndarray, " batch"]
    ) -> tuple[
        Float[Tensor, "batch future node channel"], Bool[Tensor, "batch future node channel"]
    ]:
        """The targets of these windows and their mask.

        Args:
            chosen: positions of windows.
        """
        future = (
            self.starts[chosen][:, None] + self.time_spec.past + np.arange(self.time_spec.horizon)
        )
        values, observed = (part.unflatten(0, future.shape) for part in self.at(future.ravel()))
        if self.labels is not None:
            observed = observed & torch.from_numpy(self.labels[chosen])[:, :, None, None]
        return values, observed

    def order(
        self, batch: int, run: int, seed: int, epoch: int
    ) -> list[Int64[np.ndarray, " batch"]]:
        """The batches of an epoch: shuffled runs of consecutive windows, complete batches only.

        Args:
            batch: windows of a batch.
            run: consecutive windows of a run.
            seed: of the order.
            epoch: its number.
        """
        generator = np.random.default_rng((seed, epoch))
        run = self._run(batch, run)
        first = int(generator.integers(run))  # runs start at another window in each epoch
        starts = np.arange(first, len(self) - run + 1, run)
        shuffled = (generator.permutation(starts)[:, None] + np.arange(run)).ravel()
        count = self.batches(batch, run)
        return [shuffled[i * batch : (i + 1) * batch] for i in range(count)]

    def batches(self, batch: int, run: int) -> int:
        """Number of batches of every epoch.

        Args:
            batch: windows in a batch.
            run: consecutive windows that are drawn together.
        """
        run = self._run(batch, run)
        return max(1, (len(self) - run + 1) // run * run // batch)

    def _run(self, batch: int, run: int) -> int:
        """The length of runs; 1 if there are few windows, since runs would omit many of them."""
        return min(run, batch) if len(self) >= 2 * batch else 1


def in_batches(windows: Windows, size: int) -> list[Int64[np.ndarray, " batch"]]:
    """Positions of all windows in order, `size` at a time.

    Args:
        windows: to be read in order.
        size: windows in a batch.
    """
    return [np.arange(s, min(s + size, len(windows))) for s in range(0, len(windows), size)]


def any_target(windows: Windows, size: int) -> bool:
    """Whether any target of the windows was observed; `size` of them are read at a time.

    Args:
        windows: to be searched.
        size: windows in a batch.
    """
    return any(windows.targets(chosen)[1].any() for chosen in in_batches(windows, size))


def _parts(field: Field) -> tuple[np.ndarray, np.ndarray]:
    return field.values, field.observed


def split(
    dataset: Dataset, time_spec: TimeSpec, shares: tuple[float, float, float], stride: int = 1
) -> dict[str, tuple[Field, ...]]:
    """Training, validation and test parts: complete episodes, or consecutive times of each.

    Args:
        dataset: the episodes.
        time_spec: past and horizon.
        shares: of training, validation and test.
        stride: frames between windows; if windows do not overlap, no window is split.

    Raises:
        DataError: the shares are invalid, or a part is shorter than one window.
    """
    if abs(sum(shares) - 1) > 1e-6 or min(shares) < 0 or 0 in shares[:2]:
        raise DataError(
            f"Shares {shares} must be parts of 1 with some training and some validation, "
            "e.g. (0.7, 0.1, 0.2)."
        )
    episodes = dataset.episodes
    need = time_spec.past + time_spec.horizon
    by_episode = len(episodes) >= MANY_EPISODES
    parts: dict[str, list[Field]] = {part: [] for part in PARTS}
    if by_episode:
        for part, (start, stop) in zip(PARTS, chronological(shares, len(episodes)), strict=True):
            parts[part] = [e for e in episodes[start:stop] if len(e.times) >= need]
    for episode in () if by_episode else episodes:
        unit = stride if stride >= need else 1
        length = (len(episode.times) - need) // unit + 1 if unit > 1 else len(episode.times)
        for part, (start, stop) in zip(PARTS, chronological(shares, max(length, 0)), strict=True):
            if (stop - start) * unit >= need:
                last = min(stop * unit, len(episode.times))
                parts[part].append(episode.between(start * unit, last))
    empty = [(s, part) for part, s in zip(PARTS, shares, strict=True) if s and not parts[part]]
    if empty:
        share, part = min(empty)  # the part that needs the longest series
        longest = max(len(episode.times) for episode in episodes)
        have, much = (
            (f"{len(episodes)} episodes, the longest of {longest} frames", need)
            if by_episode
            else (f"{longest} frames", int(np.ceil(need / share)))
        )
        window = f"{time_spec.past} + {time_spec.horizon} frames"
        raise DataError(
            f"The series is too short: its {part} part ({share:.0%} of {have}) is shorter than one "
            f"window of {window}. Give at least {much} frames, or shorten data.past or "
            "data.horizon, or change data.split."
        )
    return {part: tuple(fields) for part, fields in parts.items()}


def cut(
    fields: tuple[Field, ...],
    scaler: Scaler,
    time_spec: TimeSpec,
    stride: int = 1,
    nodes: Int64[np.ndarray, " node"] | None = None,
) -> Windows:
    """All windows of the fields; none crosses the end of a field.

    Args:
        fields: one part of the data.
        scaler: for normalisation.
        time_spec: past and horizon.
        stride: frames between the starts of two windows.
        nodes: positions of the points; None: all.

    Raises:
        DataError: no window fits.
    """
    need = time_spec.past + time_spec.horizon
    starts, offset = [np.zeros(0, dtype=np.int64)], 0
    for field in fields:
        first = np.arange(0, max(0, len(field.times) - need + 1), stride)
        span = field.times[first + need - 1] - field.times[first] if len(first) else first
        starts.append(offset + first[span <= MAX_STRETCH * (need - 1) * time_spec.step])
        offset += len(field.times)
    joined = np.concatenate(starts)
    if not len(joined):
        longest = max((len(f.times) for f in fields), default=0)
        raise DataError(
            f"No window of {time_spec.past} + {time_spec.horizon} frames without a long gap fits "
            f"into {len(fields)} episodes (longest: {longest} frames, usual step "
            f"{time_spec.step / 1e9:g} s). Give more data, or shorten data.past or data.horizon."
        )
    times = np.concatenate([f.times for f in fields])
    return Windows(fields, scaler, times, joined, time_spec, nodes)
