r"""Fallback: reference forecasts take part in the forecast where validation favours that.

For every channel and quarter of the leads, the network is compared with every weighted mean of
itself and one reference forecast (`SHARES`) by the mean absolute errors over blocks of the
validation part. Blocks, not windows, count as the sample, since windows overlap. The best mean is

    better beyond chance (t test, 95 %), or by a fifth    used
    better, but not beyond chance                         used with half the share of the reference
    less than 1 % better, or worse                        not used: the network stays alone
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float64
from scipy import stats

from stonet.data.windows import Windows, in_batches
from stonet.models.combination import NETWORK
from stonet.models.forecaster import Forecaster
from stonet.system import distributed
from stonet.system.progress import report_progress
from stonet.training.choice import Choice, Choices, combine, merged
from stonet.training.references import references_of
from stonet.training.run_folder import RunFolder
from stonet.training.state import State
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import StepCallback, Trainer

MAX_WINDOWS, MIN_WINDOWS = 512, 64  # of the validation part that are compared
MAX_VALUES = 2**19  # targets of all compared windows, points times channels times leads
MAX_BATCH, MAX_POINTS = 8, 2**16  # windows that are forecast together; points of all of them
BLOCKS = 10  # of the validation part
MIN_BLOCKS = 3  # fewer show nothing beyond chance
SHARES = (0.25, 0.5, 0.75, 1.0)  # of a reference forecast
GROUPS = 4  # of consecutive leads
MIN_GAIN, LARGE_GAIN = 0.01, 0.2  # relative gain: below, the network; above, the reference
ROUNDING = 1e-5  # gain in standard deviations that may be rounding
CONFIDENCE = 0.95
Mix = tuple[str, float]  # name of a reference forecast, its share
Sums = Float64[np.ndarray, "block lead channel"]


@dataclass(frozen=True)
class BlockErrors:
    """Sums of absolute errors of each forecaster, and the number of values.

    Args:
        network: of the network alone.
        mixed: of the network with a reference, by the name of the latter and its share.
        count: of values.
    """

    network: Sums
    mixed: dict[Mix, Sums]
    count: Sums


def fit_with_fallback(
    trainer: Trainer,
    folder: RunFolder | None = None,
    resume: bool = False,
    on_progress: StepCallback = lambda progress: None,
) -> tuple[TrainedModel, State]:
    """Train; then the first process compares with reference forecasts, if `train.fallback` is set.

    Their fit is in a budget of minutes.

    Args:
        trainer: of the training.
        folder: where states to resume from are saved; None: nowhere.
        resume: continue from the newest saved state.
        on_progress: called after each step and validation.
    """
    if not (trainer.config.fallback and trainer.optimisers and distributed.is_first()):
        return trainer.trained, trainer.fit(folder, resume, on_progress)
    started = trainer.clock()
    references = references_of(trainer.trained, trainer.task)
    trainer.charge(trainer.clock() - started)
    state = trainer.fit(folder, resume, on_progress)
    return with_fallback(trainer.trained, trainer.task, references), state


def with_fallback(
    trained: TrainedModel, task: Task, references: Mapping[str, Forecaster]
) -> TrainedModel:
    """The trained model, with reference forecasts where validation favours them.

    Args:
        trained: a trained model.
        task: what it was trained for.
        references: fitted reference forecasts by name.

    Example:
        >>> with_fallback(trained, task, references_of(trained, task)).choices
    """
    windows = _compared(trained, task)
    errors = block_errors(references, trained, task, windows)
    choices = choose(errors, trained.channels, trained.scaler.std)
    if not choices:
        return trained
    horizon = trained.time_spec.horizon
    model = combine(trained.model, references, choices, trained.channels, horizon)
    return replace(trained, model=model, choices=choices)


def _compared(trained: TrainedModel, task: Task) -> Windows:
    """Windows from all of the validation part."""
    windows = task.windows("validation", task.stride)
    values = len(task.nodes) * len(trained.channels) * trained.time_spec.horizon
    return windows.draw(int(np.clip(MAX_VALUES // values, MIN_WINDOWS, MAX_WINDOWS)))


@torch.no_grad()
def block_errors(
    references: Mapping[str, Forecaster], trained: TrainedModel, task: Task, windows: Windows
) -> BlockErrors:
    """Absolute errors over blocks of consecutive windows, normalised, by lead and channel.

    Args:
        references: by name.
        trained: gives network and scaler.
        task: gives the training points, at which errors count.
        windows: in the order of time.
    """
    spec = trained.time_spec
    issued = windows.times[windows.starts]
    apart = len(np.unique(issued // (spec.horizon * spec.step)))  # windows that do not overlap
    blocks = min(BLOCKS, apart, len(windows))
    block = np.arange(len(windows)) * blocks // len(windows)
    shape = (blocks, spec.horizon, len(trained.channels))
    models = {NETWORK: trained.model, **references}
    count, network = np.zeros(shape), np.zeros(shape)
    mixed = {(name, share): np.zeros(shape) for name in references for share in SHARES}
    batches = in_batches(windows, max(1, min(MAX_BATCH, MAX_POINTS // len(task.nodes))))
    graphs = {name: model.eval().graphs(task.nodes) for name, model in models.items()}
    for number, chosen in enumerate(batches):
        report_progress(number, len(batches), "comparison with reference forecasts")
        batch, (target, mask) = windows.inputs(chosen), windows.targets(chosen)
        np.add.at(count, block[chosen], mask.sum(2).double().numpy())
        forecasts = {name: model(batch, graphs[name]).forecast for name, model in models.items()}
        alone = forecasts[NETWORK]
        pairs = [(network, alone)]
        pairs += [(s, alone.lerp(forecasts[name], share)) for (name, share), s in mixed.items()]
        for sums, forecast in pairs:
            error = (trained.scaler.clip(forecast) - target).abs().double()
            np.add.at(sums, block[chosen], torch.where(mask, error, 0.0).sum(2).numpy())
    return BlockErrors(network, mixed, count)


def choose(errors: BlockErrors, channels: tuple[str, ...], scale: tuple[float, ...]) -> Choices:
    """The reference forecasts to use, and where.

    Args:
        errors: of the network and of the references, normalised.
        channels: their names.
        scale: standard deviation of each channel.
    """
    leads, found = errors.count.shape[1], []
    for c, channel in enumerate(channels):
        for group in np.array_split(np.arange(leads), min(GROUPS, leads)):
            better = _better_mix(errors, group, c)
            if better is not None:
                name, share, network, reference = better
                ends = int(group[0]) + 1, int(group[-1]) + 1
                pair = network * scale[c], reference * scale[c]
                found.append(Choice(channel, *ends, name, share, *pair))
    return merged(found)


def _better_mix(
    errors: BlockErrors, group: np.ndarray, channel: int
) -> tuple[str, float, float, float] | None:
    """(name, share, MAE of the network, MAE of the mean); None: the network is best."""
    count = errors.count[:, group, channel].sum(1)
    some = count > 0
    if not some.any():
        return None
    network = errors.network[some][:, group, channel].sum(1)
    by_block = {mix: sums[some][:, group, channel].sum(1) for mix, sums in errors.mixed.items()}
    mean = {mix: float(sums.sum() / count.sum()) for mix, sums in by_block.items()}
    best, alone = min(mean, key=mean.__getitem__), float(network.sum() / count.sum())
    if alone - mean[best] <= max(MIN_GAIN * alone, ROUNDING):
        return None
    gain = (network - by_block[best]) / count[some]
    large = mean[best] < (1 - LARGE_GAIN) * alone
    name, share = best
    return name, share if large or _beyond_chance(gain) else share / 2, alone, mean[best]


def _beyond_chance(gain: Float64[np.ndarray, " block"]) -> bool:
    """Whether the mean gain of the blocks is significantly positive."""
    if len(gain) < MIN_BLOCKS:
        return False
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    return bool(gain.mean() > stats.t.ppf(CONFIDENCE, len(gain) - 1) * error)
