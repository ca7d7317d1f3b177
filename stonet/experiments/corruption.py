"""Corrupted inputs and irregular times, applied to the test windows of a trained model.

What is lost depends on the window alone, so every model faces the same losses, and a larger share
contains the losses of a smaller one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from scipy.interpolate import CubicSpline
from torch import Tensor

from stonet.data.batch import Batch, make_batch
from stonet.data.field import Dataset, Field
from stonet.data.scaling import Scaler
from stonet.data.windows import Windows, cut, in_batches, split
from stonet.models.forecaster import Graphs
from stonet.training.budget import TrainingResult

SEED = 20
SPLINE_INPUTS = 4  # newest inputs at most that a spline through a forecast also passes through
BATCH = 8  # windows that are forecast at a time
WindowIndex = Int64[np.ndarray, " batch"]
Corruption = Callable[[Batch, WindowIndex], Batch]
Series = Float64[np.ndarray, "window future node channel"]


def no_corruption(batch: Batch, chosen: WindowIndex) -> Batch:
    """The batch as it is.

    Args:
        batch: inputs.
        chosen: positions of the windows.
    """
    return batch


def drop_values(share: float) -> Corruption:
    """Lose single values at random, independently.

    Args:
        share: of the values.
    """

    def corrupt(batch: Batch, chosen: WindowIndex) -> Batch:
        shape = batch.past.shape[1], batch.frames.shape[1]
        return _without(batch, _draws(chosen, shape) < share)

    return corrupt


def drop_sensors(share: float) -> Corruption:
    """Lose sensors at random, each throughout a window.

    Args:
        share: of the sensors.
    """

    def corrupt(batch: Batch, chosen: WindowIndex) -> Batch:
        lost = _draws(chosen, (1, batch.frames.shape[1])) < share
        return _without(batch, np.repeat(lost, batch.past.shape[1], axis=1))

    return corrupt


def drop_frames(share: float) -> Corruption:
    """Lose complete frames at random, but never the newest; the others keep their times.

    The window is filled up with empty frames before the oldest one, as `inference` does.

    Args:
        share: of the frames.
    """

    def corrupt(batch: Batch, chosen: WindowIndex) -> Batch:
        length = batch.past.shape[1]
        rank = _draws(chosen, (length,))
        rank[:, -1] = 1.0  # the newest
        count = max(1, round((1 - share) * length))
        kept = torch.from_numpy(np.sort(np.argsort(rank, axis=1)[:, length - count :], axis=1))
        lag = batch.lag.expand(len(kept), -1).gather(1, kept)
        empty = torch.full((len(kept), length - count), len(batch.frames))
        earlier = lag[:, :1] - torch.arange(length - count, 0, -1)
        return replace(
            batch,
            frames=torch.cat([batch.frames, torch.zeros_like(batch.frames[:1])]),
            observed=torch.cat([batch.seen, torch.zeros_like(batch.seen[:1])]),
            frame_time=torch.cat([batch.frame_time, batch.frame_time[:1]]),
            past=torch.cat([empty, batch.past.gather(1, kept)], dim=1),
            lag=torch.cat([earlier, lag], dim=1),
            lead=batch.lead.expand(len(kept), -1),
        )

    return corrupt


def _without(batch: Batch, lost: Bool[np.ndarray, "batch past node"]) -> Batch:
    """The batch without these inputs; windows get frames of their own, to lose them separately."""
    used = batch.past.flatten()
    observed = batch.seen[used] & ~torch.from_numpy(lost).flatten(0, 1)[..., None]
    return replace(
        batch,
        frames=batch.frames[used] * observed,
        observed=observed,
        frame_time=batch.frame_time[used],
        past=torch.arange(len(used)).view_as(batch.past),
    )


def _draws(chosen: WindowIndex, shape: tuple[int, ...]) -> Float64[np.ndarray, "batch ..."]:
    """Uniform draws in 0..1, the same for a window in whichever batch it is."""
    return np.stack([np.random.default_rng((SEED, int(w))).random(shape) for w in chosen])


def forecast_in_units(
    training: TrainingResult, batch: Batch, graphs: Graphs
) -> Float64[Tensor, "..."]:
    """The forecast for a batch in the data's own units.

    Args:
        training: its model forecasts.
        batch: inputs.
        graphs: of the model, among the points.
    """
    with torch.inference_mode():
        return training.trained.scaler.in_units(training.trained.model(batch, graphs).forecast)


def subsample(dataset: Dataset, every: int) -> Dataset:
    """Every `every`-th frame of each episode.

    Args:
        dataset: with regular times.
        every: frames from one kept frame to the next.
    """

    def thin(field: Field) -> Field:
        names = ("values", "mask", "times")
        return Field.trusted(**(vars(field) | {n: vars(field)[n][::every] for n in names}))

    return replace(dataset, episodes=tuple(thin(episode) for episode in dataset.episodes))


@dataclass(frozen=True)
class BetweenSteps:
    """Test windows of the full data for a model trained on every `every`-th frame.

    "Coarse" steps are the model's own, "fine" steps those of the full data.

    Args:
        training: on every `every`-th frame.
        dataset: with all frames.
        every: fine steps in a coarse one.
    """

    training: TrainingResult
    dataset: Dataset
    every: int

    def windows(self, raw: bool = False) -> Windows:
        """Windows as long as the model's own, in fine steps; every target once.

        Args:
            raw: whether values are in the data's units.
        """
        task, every = self.training.task, self.every
        coarse = task.time_spec
        fine = replace(
            coarse,
            step=coarse.step // every,
            past=coarse.past * every,
            horizon=coarse.horizon * every,
        )
        test = split(self.dataset, fine, task.config.data.split)["test"]
        scaler = Scaler.identity(len(task.scaler.mean)) if raw else task.scaler
        return cut(test, scaler, fine, fine.horizon, nodes=task.dataset.seen)

    def batches(
        self, jitter: bool = False, true_times: bool = True
    ) -> Iterator[tuple[WindowIndex, Batch]]:
        """Inputs at coarse steps, with all fine times of the horizon as targets.

        Args:
            jitter: move each input but the newest to an earlier fine time, by less than a coarse
                step.
            true_times: pass the true times of the inputs; otherwise the model assumes regular ones.
        """
        windows, time_spec, every = self.windows(), self.training.task.time_spec, self.every
        for chosen in in_batches(windows, BATCH):
            start = windows.starts[chosen][:, None]
            past = start + every - 1 + every * np.arange(time_spec.past)
            if jitter:
                early = np.floor(every * _draws(chosen, (time_spec.past,))).astype(np.int64)
                early[:, -1] = 0
                past = past - early
            ahead = every * time_spec.past + np.arange(every * time_spec.horizon)
            target_times = windows.times[start + ahead]
            batch = make_batch(windows.given, windows.times, past, target_times, time_spec)
            if not true_times:
                lag = torch.arange(1.0 - time_spec.past, 1.0).expand_as(batch.lag)
                batch = replace(batch, lag=lag)
            yield chosen, batch

    def forecast(self, jitter: bool = False, true_times: bool = True) -> Series:
        """Forecasts at the training points and all fine times, in the data's own units.

        Args:
            jitter: whether inputs are at irregular times.
            true_times: whether the model is given these times, or regular ones.
        """
        nodes = self.training.task.nodes
        graphs = self.training.trained.model.eval().graphs(nodes, nodes)
        batches = self.batches(jitter, true_times)
        parts = [forecast_in_units(self.training, batch, graphs).numpy() for _, batch in batches]
        return np.concatenate(parts)

    def truth(self) -> tuple[Series, Bool[np.ndarray, "window future node channel"]]:
        """The targets, and where they were observed."""
        windows = self.windows(raw=True)
        values, observed = windows.targets(np.arange(len(windows)))
        return values.double().numpy(), observed.numpy()

    def inputs(self) -> Series:
        """The inputs at coarse steps in the data's own units, the newest last."""
        windows, past = self.windows(raw=True), self.training.task.time_spec.past
        index = windows.starts[:, None] + self.every - 1 + self.every * np.arange(past)
        values, _ = windows.at(index.ravel())
        return values.unflatten(0, index.shape).double().numpy()

    def interpolated(self, series: Series, method: str) -> Series:
        """The series at fine times, interpolated in time from its values at coarse steps.

        Args:
            series: values at fine times.
            method: "linear" or "cubic" (spline).
        """
        coarse = series[:, self.every - 1 :: self.every]
        values = np.concatenate([self.inputs()[:, -SPLINE_INPUTS:], coarse], axis=1)
        num_inputs = values.shape[1] - coarse.shape[1]
        times = np.arange(values.shape[1]) - num_inputs + 1.0  # coarse steps; 0: newest input
        targets = np.arange(1, series.shape[1] + 1) / self.every
        if method == "cubic":
            return np.asarray(CubicSpline(times, values, axis=1)(targets))
        weights = np.maximum(1 - np.abs(targets[:, None] - times), 0.0)  # hat functions
        return np.einsum("tk,bknc->btnc", weights, values)
