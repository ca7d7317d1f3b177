r"""Fallback: reference forecasts replace a network where they are better in validation.

For every channel and quarter of the leads, the mean absolute errors of the network and of the best
reference forecast are compared over blocks of the validation part. Blocks, not windows, count as
the sample, since windows overlap.

    better beyond chance (t test, 95 %), or by a fifth    the reference is used instead
    better, but not beyond chance                         the mean of both is used
    less than 1 % better, or worse                        the network is used
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
GROUPS = 4  # of consecutive leads
MIN_GAIN, LARGE_GAIN = 0.01, 0.2  # relative gain: below, the network; above, the reference
ROUNDING = 1e-5  # gain in standard deviations that may be rounding
CONFIDENCE = 0.95
Sums = Float64[np.ndarray, "block lead channel"]


@dataclass(frozen=True)
class BlockErrors:
    """Sums of absolute errors of each forecaster, and the number of values.

    Args:
        sums: by name of the forecaster.
        count: of values.
    """

    sums: Mapping[str, Sums]
    count: Sums


def fit_with_fallback(
    trainer: Trainer,
    place: RunFolder | None = None,
    resume: bool = False,
    watch: StepCallback = lambda progress: None,
) -> tuple[TrainedModel, State]:
    """Train; with `train.fallback`, the first process compares with reference forecasts.

    The fit of the references is charged to the budget.

    Args:
        trainer: of the training.
        place: the run folder of saved states (None: nothing is saved).
        resume: continue from the last saved state.
        watch: called after each step and validation.
    """
    if not (trainer.config.fallback and trainer.optimisers and distributed.is_first()):
        return trainer.trained, trainer.fit(place, resume, watch)
    started = trainer.clock()
    references = references_of(trainer.trained, trainer.task)
    trainer.charge(trainer.clock() - started)
    state = trainer.fit(place, resume, watch)
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
    models = {NETWORK: trained.model, **references}
    errors = block_errors(models, trained, task, windows)
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
    models: Mapping[str, Forecaster], trained: TrainedModel, task: Task, windows: Windows
) -> BlockErrors:
    """Absolute errors over blocks of consecutive windows, normalised, by lead and channel.

    Args:
        models: by name.
        trained: gives the scaler.
        task: gives the training points, at which errors count.
        windows: in the order of time.
    """
    spec = trained.time_spec
    issued = windows.times[windows.starts]
    apart = len(np.unique(issued // (spec.horizon * spec.step)))  # windows that do not overlap
    blocks = min(BLOCKS, apart, len(windows))
    block = np.arange(len(windows)) * blocks // len(windows)
    shape = (blocks, spec.horizon, len(trained.channels))
    sums, count = {name: np.zeros(shape) for name in models}, np.zeros(shape)
    batches = in_batches(windows, max(1, min(MAX_BATCH, MAX_POINTS // len(task.nodes))))
    graphs = {name: model.eval().graphs(task.nodes) for name, model in models.items()}
    for number, chosen in enumerate(batches):
        report_progress(number, len(batches), "comparison with reference forecasts")
        batch, (target, mask) = windows.inputs(chosen), windows.targets(chosen)
        np.add.at(count, block[chosen], mask.sum(2).double().numpy())
        for name, model in models.items():
            forecast = trained.scaler.clip(model(batch, graphs[name]).forecast)
            error = torch.where(mask, (forecast - target).abs().double(), 0.0)
            np.add.at(sums[name], block[chosen], error.sum(2).numpy())
    return BlockErrors(sums, count)


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
            better = _better_reference(errors, group, c)
            if better is not None:
                name, share, network, reference = better
                ends = int(group[0]) + 1, int(group[-1]) + 1
                pair = network * scale[c], reference * scale[c]
                found.append(Choice(channel, *ends, name, share, *pair))
    return merged(found)


def _better_reference(
    errors: BlockErrors, group: np.ndarray, channel: int
) -> tuple[str, float, float, float] | None:
    """(name, share, MAE of the network, MAE of the reference); None: the network is best."""
    count = errors.count[:, group, channel].sum(1)
    some = count > 0
    if not some.any():
        return None
    by_block = {name: sums[some][:, group, channel].sum(1) for name, sums in errors.sums.items()}
    mean = {name: float(sums.sum() / count.sum()) for name, sums in by_block.items()}
    best = min((name for name in mean if name != NETWORK), key=mean.__getitem__)
    if mean[NETWORK] - mean[best] <= max(MIN_GAIN * mean[NETWORK], ROUNDING):
        return None
    gain = (by_block[NETWORK] - by_block[best]) / count[some]
    large = mean[best] < (1 - LARGE_GAIN) * mean[NETWORK]
    share = 1.0 if large or _beyond_chance(gain) else 0.5
    return best, share, mean[NETWORK], mean[best]


def _beyond_chance(gain: Float64[np.ndarray, " block"]) -> bool:
    """Whether the mean gain of the blocks is significantly positive."""
    if len(gain) < MIN_BLOCKS:
        return False
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    return bool(gain.mean() > stats.t.ppf(CONFIDENCE, len(gain) - 1) * error)
