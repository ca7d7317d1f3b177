"""Inputs that get lost, and questions at odd times: how a trained model is put to the test.

What is lost depends on the window alone, so that every model faces the same, and a larger share
loses what a smaller one does, and more.
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
from stonet.training.budget import TrainingResult

SEED = 20
KNOTS = 4  # inputs at most that a spline through the forecast also goes through
Chosen = Int64[np.ndarray, " batch"]  # which windows
Change = Callable[[Batch, Chosen], Batch]
Series = Float64[np.ndarray, "window future node channel"]


def unchanged(batch: Batch, chosen: Chosen) -> Batch:
    """Nothing is lost."""
    return batch


def random_loss(share: float) -> Change:
    """Single values are lost, each by itself."""

    def change(batch: Batch, chosen: Chosen) -> Batch:
        shape = batch.past.shape[1], batch.frames.shape[1]
        return without(batch, _draws(chosen, shape) < share)

    return change


def outage(share: float) -> Change:
    """Whole sensors are silent, each throughout a window."""

    def change(batch: Batch, chosen: Chosen) -> Batch:
        silent = _draws(chosen, (1, batch.frames.shape[1])) < share
        return without(batch, np.repeat(silent, batch.past.shape[1], axis=1))

    return change


def thinned(share: float) -> Change:
    """Whole frames are lost, but never the newest; those that are left keep their own times.

    The window is filled up with empty frames before the oldest one, as `inference` does it.
    """

    def change(batch: Batch, chosen: Chosen) -> Batch:
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

    return change


def without(batch: Batch, lost: Bool[np.ndarray, "batch past node"]) -> Batch:
    """The batch without these inputs; every window gets frames of its own, to lose its own."""
    used = batch.past.flatten()
    seen = batch.seen[used] & ~torch.from_numpy(lost).flatten(0, 1)[..., None]
    return replace(
        batch,
        frames=batch.frames[used] * seen,
        observed=seen,
        frame_time=batch.frame_time[used],
        past=torch.arange(len(used)).view_as(batch.past),
    )


def _draws(chosen: Chosen, shape: tuple[int, ...]) -> Float64[np.ndarray, "batch ..."]:
    """Uniform in 0..1, the same for a window whichever batch it is in."""
    return np.stack([np.random.default_rng((SEED, int(w))).random(shape) for w in chosen])


def answer(trained: TrainingResult, batch: Batch, graphs: object) -> Float64[Tensor, "..."]:
    """The forecast in the data's own units."""
    run = trained.trained
    with torch.inference_mode():
        return run.scaler.in_units(run.model(batch, graphs).forecast)


def coarser(dataset: Dataset, every: int) -> Dataset:
    """Every so many-th frame of each episode."""

    def thin(field: Field) -> Field:
        names = ("values", "mask", "times")
        return Field.trusted(**(vars(field) | {n: vars(field)[n][::every] for n in names}))

    return replace(dataset, episodes=tuple(thin(episode) for episode in dataset.episodes))


@dataclass(frozen=True)
class Between:
    """Test windows of the finer data, for a model that was trained on every so many-th frame."""

    trained: TrainingResult
    fine: Dataset
    every: int

    def windows(self, raw: bool = False) -> Windows:
        """As long as the model's own, in finer steps; every target once."""
        task, every = self.trained.task, self.every
        time_spec = task.time_spec
        finer = replace(
            time_spec,
            step=time_spec.step // every,
            past=time_spec.past * every,
            horizon=time_spec.horizon * every,
        )
        test = split(self.fine, finer, task.config.data.split)["test"]
        scaler = Scaler.identity(len(task.scaler.mean)) if raw else task.scaler
        return cut(test, scaler, finer, finer.horizon, nodes=task.dataset.seen)

    def batches(self, jitter: bool = False, told: bool = True) -> Iterator[tuple[Chosen, Batch]]:
        """The model's inputs, asked for every finer time ahead.

        With `jitter`, each input but the newest comes earlier by some finer steps, less than one of
        the model's own; it is `told` so, or left to believe that it did not.
        """
        windows, time_spec, every = self.windows(), self.trained.task.time_spec, self.every
        config = self.trained.task.config
        for chosen in in_batches(windows, 8):
            start = windows.starts[chosen][:, None]
            regular = start + every - 1 + every * np.arange(time_spec.past)
            early = np.floor(every * _draws(chosen, (time_spec.past,))).astype(np.int64)
            early[:, -1] = 0
            past = regular - early if jitter else regular
            ask = windows.times[
                start + every * time_spec.past + np.arange(every * time_spec.horizon)
            ]
            batch = make_batch(
                windows.given, windows.times, past, ask, time_spec, config.network.window_time
            )
            if not told:
                lag = torch.arange(1.0 - time_spec.past, 1.0).expand_as(batch.lag)
                batch = replace(batch, lag=lag)
            yield chosen, batch

    def forecast(self, jitter: bool = False, told: bool = True) -> Series:
        """At the training points and all finer times, in the data's own units."""
        nodes = self.trained.task.nodes
        graphs = self.trained.trained.model.eval().graphs(nodes, nodes)
        parts = [answer(self.trained, b, graphs).numpy() for _, b in self.batches(jitter, told)]
        return np.concatenate(parts)

    def truth(self) -> tuple[Series, Bool[np.ndarray, "window future node channel"]]:
        """What came, and where it was observed."""
        windows = self.windows(raw=True)
        values, observed = windows.targets(np.arange(len(windows)))
        return values.double().numpy(), observed.numpy()

    def inputs(self) -> Series:
        """What the model sees at its own steps, in the data's own units, the newest last."""
        windows, past = self.windows(raw=True), self.trained.task.time_spec.past
        index = windows.starts[:, None] + self.every - 1 + self.every * np.arange(past)
        values, _ = windows.at(index.ravel())
        return values.unflatten(0, index.shape).double().numpy()

    def filled(self, series: Series, how: str) -> Series:
        """The same series, interpolated between its values at the model's own steps."""
        steps = series[:, self.every - 1 :: self.every]
        known = np.concatenate([self.inputs()[:, -KNOTS:], steps], axis=1)
        before = known.shape[1] - steps.shape[1]
        at = np.arange(known.shape[1]) - before + 1.0  # in steps; 0 is the newest input
        asked = np.arange(1, series.shape[1] + 1) / self.every
        if how == "cubic":
            return np.asarray(CubicSpline(at, known, axis=1)(asked))
        weights = np.maximum(1 - np.abs(asked[:, None] - at), 0.0)  # hats
        return np.einsum("tk,bknc->btnc", weights, known)
