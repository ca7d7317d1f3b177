"""The loop: masked MAE with reconstruction, Adam, clipping, schedule, early stopping, exact resume.

One process or many run the same code on the same global batches. Everything random in a step is
keyed by (seed, step), so a state is complete without any generator's. Nothing in the loop waits for
a GPU: steps that went wrong are undone there, and what they tell is read some steps later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
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
from stonet.training.batches import BatchLoader, MicroBatch, StepBatch, on_tile, prefetch
from stonet.training.loss import Sums, error_sums, masked_loss
from stonet.training.pretraining import PointPretrainer
from stonet.training.run_folder import RunFolder
from stonet.training.state import State, Weights, newest_valid, restore, serialise
from stonet.training.task import Task
from stonet.training.tiles import Tiles
from stonet.training.trained_model import TrainedModel

LATE = 20  # steps after which a GPU is asked how they went; a processor knows at once
MAX_BAD_STEPS = 3  # non-finite losses in a row before giving up
LOOKED_AT, FEWEST = 2**16, 8  # points of all windows that a look takes in; windows at least


@dataclass(frozen=True)
class Progress:
    """What a step or a validation tells whoever watches."""

    step: int
    steps: int
    loss: float  # NaN before the first step
    best: float
    validation: float | None = None  # at the end of an epoch


Watcher = Callable[[Progress], None]


class Trainer:
    """One training: model, optimiser, windows and the state they are in.

    What cannot be trained is refused here, before anything long is done or written.
    """

    def __init__(self, run: TrainedModel, task: Task) -> None:
        self.run, self.model, self.nodes = run, run.model, task.nodes
        self.config, self.state = run.config.train, State()
        self.device = pick_device(self.config.device)
        check_precision(self.config.precision, self.device)
        self.windows = task.windows("train", task.stride)
        self.validation = task.windows("validation", task.stride).thin(
            self.config.validation_windows
        )
        few = self.validation.thin(max(FEWEST, LOOKED_AT // len(self.nodes)))
        self.looked_at = few if self._observed(few) else self.validation  # again and again
        self._check_windows()
        self.tiles = Tiles(self.model, self.nodes, self.config.tile)
        self.loader = BatchLoader(self.windows, self.tiles, run.config, self.device)
        self.per_epoch = self.loader.per_epoch
        self.steps = self.per_epoch * self.config.epochs
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.lr = self.config.lr or self.model.lr
        self.optimiser = None
        if self.parameters:  # fused: it can leave a step out without asking the host
            self.optimiser = torch.optim.Adam(self.parameters, lr=self.lr, fused=True)
        self.network: nn.Module = self.model  # or what shares its gradients with other processes
        self.best = self._weights()
        self.whole = False  # whether weights, optimiser and state belong to the same step
        self.late = 1 if self.device.type == "cpu" else LATE
        self.told: list[tuple[int, Tensor, Tensor]] = []  # steps whose losses are not read yet
        self.loss = math.nan  # the last one that is known

    def fit(
        self,
        folder: RunFolder | None = None,
        resume: bool = False,
        watch: Watcher = lambda progress: None,
    ) -> State:
        """Train run.model in place, leave its best weights in it, and tell how it went.

        With a folder, states to resume from are kept there; only the first process has one.
        """
        with distributed.together(backend_for(self.device)):
            self.prepare(folder, resume)
            try:
                with self.step_batches() as step_batches:
                    self._loop(
                        step_batches,
                        folder,
                        watch if distributed.is_first() else lambda progress: None,
                    )
            except KeyboardInterrupt:
                if self.whole:
                    self._save(folder)
                raise
        self.model.load_state_dict(self.best)
        self.model.cpu().eval()
        return self.state

    def prepare(self, folder: RunFolder | None = None, resume: bool = False) -> None:
        """What comes before the first step: a saved state or the closed forms, and the scenes."""
        if not (resume and self._restore(folder)):
            self._solve_closed_forms()
        self.model.to(self.device)
        self.tiles.prepare()
        self.state.isolated = self.tiles.isolated
        if distributed.size() > 1 and self.optimiser is not None:
            network = self.run.config.network
            idle = network.terms > 1 or network.kernel == "diag"  # a step may leave weights out
            self.network = DistributedDataParallel(
                self.model,
                broadcast_buffers=False,  # constants
                find_unused_parameters=idle,
            )

    def step_batches(self) -> AbstractContextManager[Callable[[int], StepBatch]]:
        """What each step is fed; the next one's is made while a GPU takes a step.

        A processor makes it in between: the threads of two at once would fight for its cores.
        """
        if self.device.type == "cpu":
            return nullcontext(self.loader.step_batch)
        return prefetch(self.loader.step_batch, self.steps)

    def _loop(
        self, step_batches: Callable[[int], StepBatch], folder: RunFolder | None, watch: Watcher
    ) -> None:
        state, judged = self.state, [entry["step"] for entry in self.state.history]
        while True:
            if state.step % self.per_epoch == 0 and state.step not in judged:
                self._validate_epoch(watch)
                judged.append(state.step)
                self._save(folder)
            if self.optimiser is None or state.step >= self.steps:
                return
            if state.stale >= self.config.patience:
                return
            self.step(step_batches(state.step))
            watch(Progress(state.step, self.steps, self.loss, state.best))
            if state.step % self.config.save_every == 0:
                self._save(folder)

    def step(self, step_batch: StepBatch) -> None:
        """One update of the weights."""
        state, config, optimiser = self.state, self.config, self.optimiser
        assert optimiser is not None  # there is something to train
        lr = self.lr * learning_rate(config, state.step, self.per_epoch, self.steps)
        for group in optimiser.param_groups:
            group["lr"] = lr
        self.model.train()
        optimiser.zero_grad(set_to_none=True)
        value = self._gradients(step_batch)
        norm = nn.utils.clip_grad_norm_(self.parameters, config.clip)
        bad = ~(value.isfinite() & norm.isfinite())
        with self._changing():
            optimiser.found_inf = bad.float()  # type: ignore[attr-defined]  # skips the update
            optimiser.step()
            self.told.append((state.step, value, bad))
            if len(self.told) == self.late:
                self._settle()
            state.step += 1

    def _gradients(self, step_batch: StepBatch) -> Tensor:
        """Of the loss, left with the parameters; its value is returned."""

        def forward(micro_batch: MicroBatch) -> Sums:
            batch, supervision = micro_batch.batch, micro_batch.supervision
            with autocast(self.config.precision, self.device):
                output = self.network(batch, step_batch.tile.graphs, supervision)
            return error_sums(
                output, batch, supervision.target, supervision.mask, self.config.alpha
            )

        def backward(loss: Tensor) -> tuple[Tensor | None, ...]:
            return torch.autograd.grad(loss, self.parameters, allow_unused=True)

        losses, value = masked_loss(
            threads.each(forward, step_batch.micro_batches), self.config.alpha
        )
        if len(losses) == 1:  # also shares gradients with other processes
            losses[0].backward()
            return value
        for parameter, *parts in zip(self.parameters, *threads.each(backward, losses), strict=True):
            for part in parts:
                if part is not None:
                    parameter.grad = part if parameter.grad is None else parameter.grad.add_(part)
        return value

    def _settle(self) -> None:
        """Read how the last steps went.

        A non-finite step left no trace in the weights; several in a row end the training.
        """
        state, told, self.told = self.state, self.told, []
        if not told:
            return
        steps, values, spoiled = zip(*told, strict=True)
        losses, wrong = torch.stack(values).tolist(), torch.stack(spoiled).tolist()
        for step, self.loss, bad in zip(steps, losses, wrong, strict=True):
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

    def _validate_epoch(self, watch: Watcher) -> None:
        """Validation error; the best weights so far are kept."""
        self._settle()
        state = self.state
        error = self._validate()
        if not math.isfinite(error):
            raise StonetError(
                f"The validation error at step {state.step} is {error}: training diverged, or the "
                "data hold extreme values. Lower train.lr, or set such values to NaN."
            )
        loss = sum(state.epoch_loss) / len(state.epoch_loss) if state.epoch_loss else None
        with self._changing():
            state.history.append({"step": state.step, "train": loss, "validation": error})
            state.epoch_loss = []
            state.stale += 1
            if error < state.best:
                state.best, state.best_step, state.stale = error, state.step, 0
                self.best = self._weights()
        shown = math.nan if loss is None else loss
        watch(Progress(state.step, self.steps, shown, state.best, error))

    @torch.no_grad()
    def _validate(self) -> float:
        self.model.eval()
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        for number in range(len(self.tiles)):
            tile = self.tiles[number]
            batches = in_batches(self.looked_at, self.config.batch)
            for chosen in batches[distributed.rank() :: distributed.size()]:
                batch, target, mask = on_tile(self.looked_at, chosen, tile)
                forecast = self.model(batch.to(self.device), tile.graphs).forecast
                forecast = self.run.scaler.clip(forecast)
                truth, seen = target.to(self.device), mask.to(self.device)
                sums += torch.stack(masked_mae(forecast, truth, seen)).double()
        if distributed.size() > 1:
            dist.all_reduce(sums)
        return float(sums[0] / sums[1])

    def _solve_closed_forms(self) -> None:
        """And the residuals' schooling; by the first process, for all of them."""
        if distributed.rank() == 0:
            self.model.fit_closed_form(self.windows, self.validation, self.nodes)
            school = self.school(self.run.config.pretraining.steps)
            if school is not None:
                school.fit(self.validation)
        if distributed.size() > 1:
            for value in (*self.model.buffers(), *self.model.parameters()):
                shared = value.detach().to(self.device)
                dist.broadcast(shared, 0)
                with torch.no_grad():
                    value.copy_(shared)
        self.best = self._weights()

    def school(self, steps: int) -> PointPretrainer | None:
        """A school with rows for so many steps, if the model has anyone to send there."""
        model, config = self.model, self.config
        if not isinstance(model, STONetwork) or model.residuals is None or model.base is None:
            return None
        left = float(model.base.rmse[0, 1:].mean())  # at lead 0 there is nothing to forecast
        hidden = bool(self.run.config.augmentation.hidden_sensors)
        return PointPretrainer(
            model.residuals,
            model.point_samples,
            self.windows,
            self.nodes,
            config.seed,
            hidden,
            steps,
            left,
        )

    def _check_windows(self) -> None:
        shared = min(self.config.batch, len(self.windows))
        if distributed.size() > shared:
            raise UsageError(
                f"{distributed.size()} processes cannot share batches of {shared} windows. "
                "Start fewer, raise train.batch or give more data."
            )
        if not self._observed(self.looked_at):
            raise DataError(
                "No value was observed in the validation part: when to stop cannot be told. "
                "Choose other shares with data.split, or give data with fewer gaps."
            )

    def _observed(self, windows: Windows) -> bool:
        return any(windows.targets(few)[1].any() for few in in_batches(windows, self.config.batch))

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """An interrupt in here finds half a step, which must never be saved."""
        self.whole = False
        yield
        self.whole = True

    def _weights(self) -> Weights:
        return {name: value.clone() for name, value in self.model.state_dict().items()}

    def _save(self, folder: RunFolder | None) -> None:
        self._settle()
        if folder is not None:
            best, optimiser = self.best, self.optimiser
            folder.save_state(
                serialise(self.state, self.model, best, optimiser, self._compatibility)
            )

    @property
    def _compatibility(self) -> dict[str, Any]:
        """What must be alike for a run to go on; how long it goes on, and where, may change."""
        config = self.run.config.model_dump()
        for key in ("epochs", "patience", "save_every", "device"):
            config["train"].pop(key)
        data = {
            "name": self.run.dataset,
            "points": len(self.nodes),
            "windows": [len(self.windows), len(self.validation)],
            "scaler": asdict(self.run.scaler),  # it has seen every value
        }
        return {"config": config, "data": data}

    def _restore(self, folder: RunFolder | None) -> bool:
        """Go back to the newest sound state, in every process; False where there is none."""
        data = _from_first_process(b"" if folder is None else newest_valid(folder), self.device)
        if data:
            self.model.to(self.device)  # the optimiser's state follows
            self.state, self.best = restore(data, self.model, self.optimiser, self._compatibility)
            self.whole = True
        return self.whole


def learning_rate(config: TrainConfig, step: int, per_epoch: int, steps: int) -> float:
    """The factor on train.lr at a step."""
    warm = min(1.0, (step + 1) / (config.warmup + 1))
    if config.schedule == "cosine":
        return warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * step / max(steps, 1))))
    if config.schedule == "step":
        return warm * 0.5 ** (step // (20 * per_epoch))
    return warm


def _from_first_process(data: bytes, device: torch.device) -> bytes:
    """What the first process has, in every process."""
    if not dist.is_initialized():
        return data
    size = torch.tensor(len(data), device=device)
    dist.broadcast(size, 0)
    content = torch.zeros(int(size), dtype=torch.uint8, device=device)
    if data:
        content.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
    dist.broadcast(content, 0)
    return content.cpu().numpy().tobytes()
