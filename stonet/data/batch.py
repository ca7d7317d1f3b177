"""Batch: some windows as tensors, ready for a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

from stonet.data.solar_position import sun_direction
from stonet.data.time_spec import TimeSpec
from stonet.system.devices import to_device

Values = tuple[Float[Tensor, "frame node channel"], Bool[Tensor, "frame node channel"]]
NEAR = 1e-3  # steps; a lag this close to an integer counts as an integer


@dataclass(frozen=True)
class MissingPattern:
    """Which nodes have no value at all in a window; it decides how gaps are filled.

    Args:
        some: there are nodes without any value.
        gaps: other nodes lack some of their values.
        same_channels: a node without values lacks them in all channels.
        same_windows: by channel: the same nodes in every window.
    """

    some: bool
    gaps: bool
    same_channels: bool
    same_windows: tuple[bool, ...]


@dataclass(frozen=True)
class Batch:
    """Windows ready for a model: normalised values, times in steps from the issue time.

    The inputs of a window are `frames[past]`: a frame that several windows share is stored once.
    If all windows have the same times, `lag` and `lead` have a single row.

    Branches of the computation depend on values in host memory (`on_host`), so that no branch
    synchronises with the GPU. A batch that was changed on a GPU has no copy in host memory.

    Args:
        frames: normalised values; 0 where missing.
        observed: None: every value was observed.
        frame_time: calendar features of each frame.
        past: positions of the inputs in `frames`, oldest first.
        lag: of the inputs, in steps; 0 is the issue time.
        lead: of the targets, in steps.
        future_time: calendar features of the targets.
        issue_time: calendar features of the issue time.
        hour: of the day, at the issue time.
        sun: at integer steps around the issue time.
        host: a copy in host memory; None: this batch is in host memory.
    """

    frames: Float[Tensor, "frame node channel"]
    observed: Bool[Tensor, "frame node channel"] | None
    frame_time: Float[Tensor, "frame feature"]
    past: Int[Tensor, "batch past"]
    lag: Float[Tensor, "rows past"]
    lead: Float[Tensor, "rows future"]
    future_time: Float[Tensor, "batch future calendar"]
    issue_time: Float[Tensor, "batch calendar"]
    hour: Int[Tensor, " batch"]
    sun: Float[Tensor, "batch knot 3"] | None = None
    host: Batch | None = None

    def to(self, device: torch.device) -> Batch:
        """The batch on a device, with a copy in host memory.

        Args:
            device: a processor or a GPU.
        """
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        moved = {k: to_device(v, device) for k, v in parts.items() if isinstance(v, Tensor)}
        if device.type == "cpu":
            return replace(self, **moved, host=None)
        assert self.missing_pattern is not None  # computed here, in the thread that loads
        return replace(self, **moved, host=self.on_host)

    @property
    def on_host(self) -> Batch:
        """The same batch in host memory."""
        return self if self.host is None else self.host

    @cached_property
    def known(self) -> Bool[Tensor, "batch node channel"]:
        """Whether a node has any value in a window, by channel."""
        return self.seen[self.past].any(1)

    def odd(self, past: int) -> Bool[Tensor, " rows"]:
        """Windows whose inputs are not `past` frames one step apart; computed in host memory.

        Args:
            past: expected number of inputs.
        """
        lag = self.on_host.lag
        steps = torch.arange(1 - past, 1) if lag.shape[1] == past else torch.tensor(torch.inf)
        return ((lag - steps).abs() >= NEAR).any(1)

    def regular(self, past: int) -> bool:
        """Whether the inputs of all windows are `past` frames one step apart.

        Args:
            past: expected number of inputs.
        """
        return not bool(self.odd(past).any())

    def gaps(self, past: int) -> Float[Tensor, "batch node"] | None:
        """The share of integer lags to be imputed, at nodes with any value; None: no lag is.

        Args:
            past: number of inputs of the model.
        """
        if self.regular(past) and not self.missing_pattern.gaps:
            return None
        integer = ((self.lag - self.lag.round()).abs() < NEAR) & (self.lag > 0.5 - past)
        count = (self.seen[self.past] & integer[:, :, None, None]).sum(1)
        return ((past - count) * self.known).to(self.frames.dtype).mean(-1) / past

    @property
    def late(self) -> Bool[Tensor, "batch node"]:
        """Whether a node lacks its newest value in every channel, but has earlier ones."""
        last = self.seen[self.past[:, -1]]
        return ~last.any(-1) & self.known.any(-1)

    @cached_property
    def missing_pattern(self) -> MissingPattern:
        """The pattern of missing values, computed in host memory."""
        if self.host is not None:
            return self.host.missing_pattern
        if self.observed is None:
            return MissingPattern(False, False, True, (True,) * self.frames.shape[2])
        known = self.known
        return MissingPattern(
            some=not bool(known.all()),
            gaps=bool((self.observed[self.past] != known[:, None]).any()),
            same_channels=bool((known == known[..., :1]).all()),
            same_windows=tuple((known == known[:1]).flatten(0, 1).all(0).tolist()),
        )

    @property
    def seen(self) -> Bool[Tensor, "frame node channel"]:
        """`observed` as a tensor, also if every value was observed."""
        everything = torch.ones_like(self.frames, dtype=torch.bool)
        return everything if self.observed is None else self.observed

    def newest(self, count: int) -> Batch:
        """The last `count` inputs of each window; frames that no window uses are removed.

        Args:
            count: inputs to keep.
        """
        if count >= self.past.shape[1]:
            return self
        unique = torch.unique(self.on_host.past[:, -count:], return_inverse=True)
        used, position = (to_device(part, self.frames.device) for part in unique)
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
        """As `newest`, but all frames are kept, so that nothing is copied.

        Args:
            count: inputs to keep.
        """
        return replace(
            self,
            past=self.past[:, -count:],
            lag=self.lag[:, -count:],
            host=None if self.host is None else self.host.recent(count),
        )

    @property
    def present(self) -> Bool[Tensor, "frame node"] | None:
        """Whether a node has any value in a frame; None: every node has."""
        return None if self.observed is None else self.observed.any(-1)


def hide_values(batch: Batch, share: float, seed: int) -> Batch:
    """A batch in which values are missing at random.

    Args:
        batch: the complete windows.
        share: of the (frame, node) pairs that are hidden.
        seed: of the draw.
    """
    shape = batch.frames.shape[:2]
    kept = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) >= share
    seen = batch.seen & kept[..., None]
    return replace(batch, frames=batch.frames * seen, observed=seen)


def make_batch(
    frames: Callable[[Int64[np.ndarray, " frame"]], Values],
    times: Int64[np.ndarray, " time"],
    past: Int64[np.ndarray, "batch past"],
    target_times: Int64[np.ndarray, "batch future"],
    time_spec: TimeSpec,
) -> Batch:
    """The batch of windows with these inputs and target times.

    Args:
        frames: gives normalised values and the mask of frames, by position.
        times: of all frames, in nanoseconds.
        past: positions of the input frames of each window.
        target_times: of each window, in nanoseconds.
        time_spec: step, past and horizon.
    """
    issue = times[past[:, -1]]
    lag = time_spec.steps(times[past] - issue[:, None])
    lead = time_spec.steps(target_times - issue[:, None])
    used, position = np.unique(past, return_inverse=True)
    position = position.reshape(past.shape)
    if (lag == lag[:1]).all() and (lead == lead[:1]).all():
        lag, lead = lag[:1], lead[:1]
    values, seen = frames(used)
    return Batch(
        frames=values,
        observed=None if bool(seen.all()) else seen,
        frame_time=torch.from_numpy(time_spec.calendar_features(times[used])),
        past=torch.from_numpy(position),
        lag=torch.from_numpy(lag),
        lead=torch.from_numpy(lead),
        future_time=torch.from_numpy(time_spec.calendar_features(target_times)),
        issue_time=torch.from_numpy(time_spec.calendar_features(issue)),
        hour=torch.from_numpy(time_spec.hour(issue)),
        sun=torch.from_numpy(sun_direction(issue[:, None] + time_spec.around))
        if time_spec.sunny
        else None,
    )
