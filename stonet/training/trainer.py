"""Trainer: gradient steps on the masked loss, with clipping, a schedule and early stopping.

The order of a training: closed forms, steps, and validations between them. One process or several
run the same code on the same global batches. All random numbers of a step depend on (seed, step)
only, so that a saved state needs no generator. A resumed training of epochs equals an uninterrupted
one bit by bit; one of minutes continues its budget, and differs only by what the clock decides:
learning rates, and when it validates and ends. On a GPU no step waits for its result: non-finite
updates are skipped on the device, and losses are read some steps later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from stonet.data.windows import any_target, in_batches
from stonet.errors import DataError, DivergedError, UsageError
from stonet.models.forecaster import Forecaster, masked_mae
from stonet.system import distributed, threads
from stonet.system.devices import autocast, backend_for, check_precision, pick_device
from stonet.system.interrupts import sigterm_interrupts, uninterrupted
from stonet.training.batches import BatchLoader, MicroBatch, StepBatch, Tiles, on_tile, prefetch
from stonet.training.loss import Sums, error_sums, masked_loss
from stonet.training.optimiser import optimisers
from stonet.training.run_folder import RunFolder
from stonet.training.schedule import Schedule, clock, learning_rate_factor
from stonet.training.state import (
    State,
    Weights,
    compatibility,
    newest_valid,
    restore,
    serialise,
)
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel

if TYPE_CHECKING:
    from stonet.training.race import Race

GPU_LOSS_DELAY = 20  # steps whose losses are read from a GPU together
MAX_BAD_STEPS = 3  # consecutive non-finite losses before training is given up
MAX_VALIDATION_POINTS = 2**16  # points of all windows in the validation after each epoch
MIN_VALIDATION_WINDOWS = 8


@dataclass(frozen=True)
class Progress:
    """What a progress callback receives after each step and each validation.

    Args:
        step: number of steps taken.
        steps: of the whole training; None: minutes decide.
        share: of the steps that is completed, from 0 to 1.
        loss: NaN before the first step.
        best: validation error.
        validation: after a validation.
    """

    step: int
    steps: int | None
    share: float
    loss: float
    best: float
    validation: float | None = None


StepCallback = Callable[[Progress], None]


class Trainer:
    """One training: model, optimiser, windows and state.

    Data and settings that cannot be trained are refused here, before any long work.

    Args:
        trained: the model, which is trained in place.
        task: what it is trained for.
        race: that came before, from which the training takes initial weights; its cost is part of
            the budget.

    Raises:
        DataError: if no value was observed in the validation part.
        UsageError: if processes, device, precision or tiles do not fit.

    Example:
        >>> trained = TrainedModel.untrained(task)
        >>> state = Trainer(trained, task).fit()
        >>> state.best
    """

    def __init__(self, trained: TrainedModel, task: Task, race: Race | None = None) -> None:
        self.trained, self.model, self.nodes = trained, trained.model, task.nodes
        self.task, self.config, self.race = task, trained.config.train.complete, race
        self.state = State(race=None if race is None else race.to_json())
        self.device = pick_device(self.config.device)
        check_precision(self.config.precision, self.device)
        self.windows = task.windows("train", task.stride)
        self.validation = task.validation_windows
        max_windows = max(MIN_VALIDATION_WINDOWS, MAX_VALIDATION_POINTS // len(self.nodes))
        fewer = self.validation.draw(max_windows)
        observed = any_target(fewer, self.config.batch)
        self.epoch_validation = fewer if observed else self.validation
        self._check_windows()
        self.tiles = Tiles(self.model, self.nodes, self.config.tile)
        self.loader = BatchLoader(self.windows, self.tiles, trained.config, self.device)
        self.steps_per_epoch = self.loader.steps_per_epoch
        taken = 0 if race is None else race.steps
        self.schedule = Schedule.of(self.config, self.steps_per_epoch, taken)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.lr = self.config.lr or self.model.lr
        self.optimisers = optimisers(self.model, self.config)
        self.network: nn.Module = self.model  # wrapped in DDP where there are several processes
        self.best = self.initial = self._weights()
        self.donors: Sequence[Forecaster] = ()  # which may have the same closed forms
        self.consistent = False  # whether weights, optimiser and state are of the same step
        self.loss_delay = 1 if self.device.type == "cpu" else GPU_LOSS_DELAY
        self.unread: list[tuple[int, Tensor, Tensor]] = []  # (step, loss, whether it is bad)
        self.loss = math.nan  # the last one that was read
        self.clock = clock(self.device)
        self.before = 0.0 if race is None else race.spent  # seconds spent before `started`
        self.started = self.clock()

    def charge(self, seconds: float) -> None:
        """Count work done before `fit` as part of a budget of minutes, at most half of it.

        Args:
            seconds: of that work.
        """
        if self.schedule.seconds is not None:
            self.before += min(seconds, 0.5 * self.schedule.seconds)

    def fit(
        self,
        folder: RunFolder | None = None,
        resume: bool = False,
        on_progress: StepCallback = lambda progress: None,
    ) -> State:
        """Train the model in place; at the end it has the weights of the best validation.

        Args:
            folder: where states to resume from are saved (None: nowhere). Of several processes
                only the first has one.
            resume: continue from the newest saved state, if there is one.
            on_progress: called in the first process after each step and validation.

        Returns:
            the final state, with the history of losses.

        Raises:
            DivergedError: if training diverges.
        """
        callback = on_progress if distributed.is_first() else lambda progress: None
        interrupts = sigterm_interrupts(distributed.is_first())
        with distributed.process_group(backend_for(self.device)), interrupts:
            self.started = self.clock()
            self.prepare(folder, resume)
            try:
                with self.step_batches() as step_batches:
                    self._train(step_batches, folder, callback)
            except KeyboardInterrupt:
                with uninterrupted():
                    if self.consistent:
                        self._save(folder)
                raise
        self.model.load_state_dict(self.best)
        self.model.cpu().eval()
        return self.state

    def prepare(self, folder: RunFolder | None = None, resume: bool = False) -> None:
        """Everything before the first step: a saved state or closed forms; then the graphs.

        Args:
            folder: with a saved state; None: there is none.
            resume: whether to continue from that state.
        """
        if not (resume and self._restore(folder)):
            self._initialise()
        self.model.to(self.device)
        self.tiles.prepare()
        self.state.isolated = self.tiles.isolated
        if distributed.size() > 1 and self.optimisers:
            self.network = DistributedDataParallel(
                self.model,
                broadcast_buffers=False,  # constants
                find_unused_parameters=self.model.skips_weights,
            )

    def _initialise(self) -> None:
        """Closed forms, by the first process; then all have the same weights."""
        if self.race is not None and self.race.weights is not None:
            self.model.load_state_dict(self.race.weights)
        elif distributed.is_first() and not any(map(self.model.adopt_closed_form, self.donors)):
            self.model.fit_closed_form(self.windows, self.validation, self.nodes)
        if distributed.size() > 1:
            for value in (*self.model.buffers(), *self.model.parameters()):
                shared = value.detach().to(self.device)
                dist.broadcast(shared, 0)
                with torch.no_grad():
                    value.copy_(shared)
        self.best = self.initial = self._weights()

    def step_batches(self) -> AbstractContextManager[Callable[[int], StepBatch]]:
        """The batch of each step. For a GPU the next one is made while a step runs.

        On a CPU it is made between steps: two sets of threads would compete for the cores.
        """
        if self.device.type == "cpu":
            return nullcontext(self.loader.step_batch)
        return prefetch(self.loader.step_batch, self.schedule.steps)

    def _train(
        self,
        step_batches: Callable[[int], StepBatch],
        folder: RunFolder | None,
        on_progress: StepCallback,
    ) -> None:
        """Steps and validations until the end, or until validation stops improving."""
        state, schedule = self.state, self.schedule
        patient = schedule.seconds is not None
        while True:
            self._read_clock()
            if schedule.validates(state):
                self._validate_weights(on_progress)
                self._save(folder)
            if not self.optimisers or schedule.ended(state):
                return
            if state.stale >= self.config.patience and not patient:
                return
            self.step(step_batches(state.step))
            on_progress(self._progress(self.loss))
            if state.step % self.config.save_every == 0:
                self._save(folder)

    def _read_clock(self) -> None:
        """Note the seconds spent, as the first process counts them; not if steps are counted."""
        if self.schedule.seconds is not None:
            self.state.spent = distributed.of_first(self._seconds(), self.device)

    def _seconds(self) -> float:
        """Seconds spent on this training, by this process and by those that it continues."""
        return self.before + self.clock() - self.started

    def _progress(self, loss: float, error: float | None = None) -> Progress:
        """What the callback receives."""
        state, schedule = self.state, self.schedule
        share = schedule.progress(state)
        return Progress(state.step, schedule.steps, share, loss, state.best, error)

    def step(self, step_batch: StepBatch) -> None:
        """One update of the weights; skipped if loss or gradient is not finite.

        Args:
            step_batch: of the loader.
        """
        state, config, progress = self.state, self.config, self.schedule.progress(self.state)
        factor = learning_rate_factor(config, state.step, progress)
        self.model.train()
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=True)
            for group in optimiser.param_groups:
                group["lr"] = self.lr * factor
        loss = self._compute_gradients(step_batch, progress)
        norm = nn.utils.clip_grad_norm_(self.parameters, config.clip)
        bad = ~(loss.isfinite() & norm.isfinite())
        with self._inconsistent():
            for optimiser in self.optimisers:
                optimiser.found_inf = bad.float()  # type: ignore[attr-defined]  # skips the update
                optimiser.step()
            self.unread.append((state.step, loss, bad))
            if len(self.unread) == self.loss_delay:
                self._read_losses()
            state.step += 1

    def _compute_gradients(self, step_batch: StepBatch, progress: float) -> Tensor:
        """Gradients of the loss in `parameter.grad`; its value is returned."""

        def forward(micro_batch: MicroBatch) -> Sums:
            batch, supervision = micro_batch.batch, micro_batch.supervision(progress)
            with autocast(self.config.precision, self.device):
                output = self.network(batch, step_batch.tile.graphs, supervision)
            return error_sums(
                output, batch, supervision.target, supervision.mask, self.config.alpha
            )

        def backward(loss: Tensor) -> tuple[Tensor | None, ...]:
            return torch.autograd.grad(loss, self.parameters, allow_unused=True)

        sums = threads.each(forward, step_batch.micro_batches)
        losses, value = masked_loss(sums, self.config.alpha)
        if len(losses) == 1:  # DDP shares gradients only in a plain backward
            losses[0].backward()
            return value
        for parameter, *parts in zip(self.parameters, *threads.each(backward, losses), strict=True):
            for part in parts:
                if part is not None:
                    parameter.grad = part if parameter.grad is None else parameter.grad.add_(part)
        return value

    def _read_losses(self) -> None:
        """Read the losses of the last steps; several non-finite ones in a row are an error."""
        state, unread, self.unread = self.state, self.unread, []
        if not unread:
            return
        steps, losses, bad_steps = zip(*unread, strict=True)
        values, skipped = torch.stack(losses).tolist(), torch.stack(bad_steps).tolist()
        for step, self.loss, bad in zip(steps, values, skipped, strict=True):
            if not bad:
                state.bad = 0
                state.epoch_loss.append(self.loss)
                continue
            state.bad += 1
            state.skipped += 1
            if state.bad >= MAX_BAD_STEPS:
                raise DivergedError(
                    f"The loss was not finite in {MAX_BAD_STEPS} steps in a row, the last one step "
                    f"{step}: training diverged, or the data hold extreme values. Lower "
                    "train.lr or train.clip, or set such values to NaN."
                )

    def _validate_weights(self, on_progress: StepCallback) -> None:
        """Validate; keep the weights if they are the best so far."""
        self._read_losses()
        state = self.state
        error = self._validate()
        if not math.isfinite(error):
            raise DivergedError(
                f"The validation error at step {state.step} is {error}: training diverged, or the "
                "data hold extreme values. Lower train.lr, or set such values to NaN."
            )
        loss = sum(state.epoch_loss) / len(state.epoch_loss) if state.epoch_loss else None
        with self._inconsistent():
            state.history.append({"step": state.step, "train": loss, "validation": error})
            state.epoch_loss = []
            self._note_validation()
            state.stale += 1
            if error < state.best:
                state.best, state.best_step, state.stale = error, state.step, 0
                self.best = self._weights()
        on_progress(self._progress(math.nan if loss is None else loss, error))

    def _note_validation(self) -> None:
        """Add the seconds of this validation; the training begins after the first one."""
        state, before = self.state, self.state.spent
        self._read_clock()
        state.validating += state.spent - before
        state.validated = state.spent
        if state.step == 0:
            state.begun = state.spent

    @torch.no_grad()
    def _validate(self) -> float:
        """MAE over the validation windows, in normalised units, over all tiles and processes."""
        self.model.eval()
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        for number in range(len(self.tiles)):
            tile = self.tiles[number]
            batches = in_batches(self.epoch_validation, self.config.batch)
            for chosen in batches[distributed.rank() :: distributed.size()]:
                batch, target, mask = on_tile(self.epoch_validation, chosen, tile)
                forecast = self.model(batch.to(self.device), tile.graphs).forecast
                forecast = self.trained.scaler.clip(forecast)
                target, mask = target.to(self.device), mask.to(self.device)
                sums += torch.stack(masked_mae(forecast, target, mask)).double()
        if distributed.size() > 1:
            dist.all_reduce(sums)
        return float(sums[0] / sums[1])

    def _check_windows(self) -> None:
        """Refuse more processes than windows in a batch, and a validation part without values."""
        shared = min(self.config.batch, len(self.windows))
        if distributed.size() > shared:
            raise UsageError(
                f"{distributed.size()} processes cannot share batches of {shared} windows. "
                "Start fewer, raise train.batch or give more data."
            )
        if not any_target(self.epoch_validation, self.config.batch):
            raise DataError(
                "No value was observed in the validation part, which decides when to stop. "
                "Choose other shares with data.split, or give data with fewer gaps."
            )

    @contextmanager
    def _inconsistent(self) -> Iterator[None]:
        """A block after whose interruption the state must not be saved."""
        self.consistent = False
        yield
        self.consistent = True

    def _weights(self) -> Weights:
        return {name: value.clone() for name, value in self.model.state_dict().items()}

    def _save(self, folder: RunFolder | None) -> None:
        self._read_losses()
        if folder is not None:
            if self.schedule.seconds is not None:
                self.state.spent = self._seconds()
            saved = self.state, self.model, self.best, self.optimisers, self._requirements()
            folder.save_state(serialise(*saved))

    def _requirements(self) -> dict[str, Any]:
        return compatibility(self.trained, len(self.windows), len(self.validation))

    def _restore(self, folder: RunFolder | None) -> bool:
        """Continue from the newest valid state, in every process; False if there is none."""
        data = newest_valid(folder, self.device)
        if data:
            self.model.to(self.device)  # so that the optimiser's state is loaded there
            requirements = self._requirements()
            self.state, self.best = restore(data, self.model, self.optimisers, requirements)
            self.before = self.state.spent
            self.consistent = True
        return self.consistent
