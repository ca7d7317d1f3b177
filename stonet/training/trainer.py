"""Trainer: Adam on the masked loss, with gradient clipping, a schedule and early stopping.

The order of a training: closed forms, pretraining of the residual network, steps, and a validation
after each epoch. One process or several run the same code on the same global batches. All random
numbers of a step depend on (seed, step) only, so that a saved state needs no generator and a
resumed training equals an uninterrupted one bit by bit. On a GPU no step waits for its result:
non-finite updates are skipped on the device, and losses are read some steps later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from stonet.config import TrainConfig
from stonet.data.windows import Windows, in_batches
from stonet.errors import DataError, StonetError, UsageError
from stonet.models.forecaster import masked_mae
from stonet.models.stonet import STONetwork
from stonet.system import distributed, threads
from stonet.system.devices import autocast, backend_for, check_precision, pick_device
from stonet.training.batches import BatchLoader, MicroBatch, StepBatch, Tiles, on_tile, prefetch
from stonet.training.loss import Sums, error_sums, masked_loss
from stonet.training.pretraining import PointPretrainer
from stonet.training.run_folder import RunFolder
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

GPU_LOSS_DELAY = 20  # steps whose losses are read from a GPU together
MAX_BAD_STEPS = 3  # consecutive non-finite losses before training is given up
MAX_VALIDATION_POINTS = 2**16  # points of all windows in the validation after each epoch
MIN_VALIDATION_WINDOWS = 8


@dataclass(frozen=True)
class Progress:
    """What a progress callback receives after each step and each validation."""

    step: int
    steps: int  # of the whole training
    loss: float  # NaN before the first step
    best: float  # validation error
    validation: float | None = None  # at the end of an epoch


StepCallback = Callable[[Progress], None]


class Trainer:
    """One training: model, optimiser, windows and state.

    Data and settings that cannot be trained are refused here, before any long work.

    Args:
        trained: the model, which is trained in place.
        task: what it is trained for.

    Raises:
        DataError: if no value was observed in the validation part.
        UsageError: if processes, device, precision or tiles do not fit.

    Example:
        >>> trained = TrainedModel.untrained(task)
        >>> state = Trainer(trained, task).fit()
        >>> state.best
    """

    def __init__(self, trained: TrainedModel, task: Task) -> None:
        self.trained, self.model, self.nodes = trained, trained.model, task.nodes
        self.config, self.state = trained.config.train.complete, State()
        self.device = pick_device(self.config.device)
        check_precision(self.config.precision, self.device)
        self.windows = task.windows("train", task.stride)
        self.validation = task.windows("validation", task.stride).thin(
            self.config.validation_windows
        )
        max_windows = max(MIN_VALIDATION_WINDOWS, MAX_VALIDATION_POINTS // len(self.nodes))
        fewer = self.validation.thin(max_windows)
        self.epoch_validation = fewer if self._any_observed(fewer) else self.validation
        self._check_windows()
        self.tiles = Tiles(self.model, self.nodes, self.config.tile)
        self.loader = BatchLoader(self.windows, self.tiles, trained.config, self.device)
        self.steps_per_epoch = self.loader.steps_per_epoch
        self.total_steps = self.steps_per_epoch * self.config.epochs
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.lr = self.config.lr or self.model.lr
        self.optimiser = None
        if self.parameters:  # fused: it can skip an update without a transfer to the host
            self.optimiser = torch.optim.Adam(self.parameters, lr=self.lr, fused=True)
        self.network: nn.Module = self.model  # wrapped in DDP where there are several processes
        self.best = self._weights()
        self.consistent = False  # whether weights, optimiser and state are of the same step
        self.loss_delay = 1 if self.device.type == "cpu" else GPU_LOSS_DELAY
        self.unread: list[tuple[int, Tensor, Tensor]] = []  # (step, loss, whether it is bad)
        self.loss = math.nan  # the last one that was read

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
            StonetError: if training diverges.
        """
        callback = on_progress if distributed.is_first() else lambda progress: None
        with distributed.process_group(backend_for(self.device)):
            self.prepare(folder, resume)
            try:
                with self.step_batches() as step_batches:
                    self._train(step_batches, folder, callback)
            except KeyboardInterrupt:
                if self.consistent:
                    self._save(folder)
                raise
        self.model.load_state_dict(self.best)
        self.model.cpu().eval()
        return self.state

    def prepare(self, folder: RunFolder | None = None, resume: bool = False) -> None:
        """Everything before the first step: a saved state or closed forms; then the graphs."""
        if not (resume and self._restore(folder)):
            self._initialise()
        self.model.to(self.device)
        self.tiles.prepare()
        self.state.isolated = self.tiles.isolated
        if distributed.size() > 1 and self.optimiser is not None:
            self.network = DistributedDataParallel(
                self.model,
                broadcast_buffers=False,  # constants
                find_unused_parameters=self.model.skips_weights,
            )

    def _initialise(self) -> None:
        """Closed forms and pretraining, by the first process; then all have the same weights."""
        if distributed.rank() == 0:
            self.model.fit_closed_form(self.windows, self.validation, self.nodes)
            pretrainer = self.pretrainer(self.trained.config.pretraining.steps)
            if pretrainer is not None:
                pretrainer.fit(self.validation)
        if distributed.size() > 1:
            for value in (*self.model.buffers(), *self.model.parameters()):
                shared = value.detach().to(self.device)
                dist.broadcast(shared, 0)
                with torch.no_grad():
                    value.copy_(shared)
        self.best = self._weights()

    def pretrainer(self, steps: int) -> PointPretrainer | None:
        """The pretraining of the residual network, with samples for that many steps.

        None for a model without a residual network. The closed forms must be solved.
        """
        model = self.model
        if not isinstance(model, STONetwork) or model.residuals is None or model.base is None:
            return None
        base_error = float(model.base.rmse[0, 1:].mean())  # after lead 0, where it is 0
        hidden = bool(self.trained.config.augmentation.hidden_sensors)
        return PointPretrainer(
            model.residuals,
            model.point_samples,
            self.windows,
            self.nodes,
            self.config.seed,
            hidden,
            steps,
            base_error,
        )

    def step_batches(self) -> AbstractContextManager[Callable[[int], StepBatch]]:
        """The batch of each step. For a GPU the next one is made while a step runs.

        On a CPU it is made between steps: two sets of threads would compete for the cores.
        """
        if self.device.type == "cpu":
            return nullcontext(self.loader.step_batch)
        return prefetch(self.loader.step_batch, self.total_steps)

    def _train(
        self,
        step_batches: Callable[[int], StepBatch],
        folder: RunFolder | None,
        on_progress: StepCallback,
    ) -> None:
        """Steps and validations until the last epoch, or until validation stops improving."""
        state, validated = self.state, [entry["step"] for entry in self.state.history]
        while True:
            if state.step % self.steps_per_epoch == 0 and state.step not in validated:
                self._end_epoch(on_progress)
                validated.append(state.step)
                self._save(folder)
            if self.optimiser is None or state.step >= self.total_steps:
                return
            if state.stale >= self.config.patience:
                return
            self.step(step_batches(state.step))
            on_progress(Progress(state.step, self.total_steps, self.loss, state.best))
            if state.step % self.config.save_every == 0:
                self._save(folder)

    def step(self, step_batch: StepBatch) -> None:
        """One update of the weights; skipped if loss or gradient is not finite."""
        state, config, optimiser = self.state, self.config, self.optimiser
        assert optimiser is not None  # there are parameters
        factor = learning_rate_factor(config, state.step, self.steps_per_epoch, self.total_steps)
        for group in optimiser.param_groups:
            group["lr"] = self.lr * factor
        self.model.train()
        optimiser.zero_grad(set_to_none=True)
        loss = self._compute_gradients(step_batch)
        norm = nn.utils.clip_grad_norm_(self.parameters, config.clip)
        bad = ~(loss.isfinite() & norm.isfinite())
        with self._inconsistent():
            optimiser.found_inf = bad.float()  # type: ignore[attr-defined]  # skips the update
            optimiser.step()
            self.unread.append((state.step, loss, bad))
            if len(self.unread) == self.loss_delay:
                self._read_losses()
            state.step += 1

    def _compute_gradients(self, step_batch: StepBatch) -> Tensor:
        """Gradients of the loss in `parameter.grad`; its value is returned."""

        def forward(micro_batch: MicroBatch) -> Sums:
            batch, supervision = micro_batch.batch, micro_batch.supervision
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
                raise StonetError(
                    f"The loss was not finite in {MAX_BAD_STEPS} steps in a row, the last one step "
                    f"{step}: training diverged, or the data hold extreme values. Lower "
                    "train.lr or train.clip, or set such values to NaN."
                )

    def _end_epoch(self, on_progress: StepCallback) -> None:
        """Validate; keep the weights if they are the best so far."""
        self._read_losses()
        state = self.state
        error = self._validate()
        if not math.isfinite(error):
            raise StonetError(
                f"The validation error at step {state.step} is {error}: training diverged, or the "
                "data hold extreme values. Lower train.lr, or set such values to NaN."
            )
        loss = sum(state.epoch_loss) / len(state.epoch_loss) if state.epoch_loss else None
        with self._inconsistent():
            state.history.append({"step": state.step, "train": loss, "validation": error})
            state.epoch_loss = []
            state.stale += 1
            if error < state.best:
                state.best, state.best_step, state.stale = error, state.step, 0
                self.best = self._weights()
        shown = math.nan if loss is None else loss
        on_progress(Progress(state.step, self.total_steps, shown, state.best, error))

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
        if not self._any_observed(self.epoch_validation):
            raise DataError(
                "No value was observed in the validation part, which decides when to stop. "
                "Choose other shares with data.split, or give data with fewer gaps."
            )

    def _any_observed(self, windows: Windows) -> bool:
        """Whether any target of the windows was observed."""
        batches = in_batches(windows, self.config.batch)
        return any(windows.targets(chosen)[1].any() for chosen in batches)

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
            requirements = self._requirements()
            folder.save_state(
                serialise(self.state, self.model, self.best, self.optimiser, requirements)
            )

    def _requirements(self) -> dict[str, Any]:
        return compatibility(self.trained, len(self.windows), len(self.validation))

    def _restore(self, folder: RunFolder | None) -> bool:
        """Continue from the newest valid state, in every process; False if there is none."""
        data = newest_valid(folder, self.device)
        if data:
            self.model.to(self.device)  # so that the optimiser's state is loaded there
            requirements = self._requirements()
            self.state, self.best = restore(data, self.model, self.optimiser, requirements)
            self.consistent = True
        return self.consistent


def learning_rate_factor(
    config: TrainConfig, step: int, steps_per_epoch: int, total_steps: int
) -> float:
    """The factor on train.lr at a step: warm-up times schedule."""
    warmup = min(1.0, (step + 1) / (config.warmup + 1))
    if config.schedule == "cosine":
        turn = math.pi * step / max(total_steps, 1)
        return warmup * (0.01 + 0.99 * 0.5 * (1 + math.cos(turn)))
    if config.schedule == "step":
        return warmup * 0.5 ** (step // (20 * steps_per_epoch))
    return warmup
