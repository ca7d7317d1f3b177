"""The loop: masked MAE with reconstruction, Adam, clipping, schedule, early stopping, exact resume.

One process or many (started by torchrun) run the same code on the same global batches. Everything
random in a step is keyed by (seed, step), so a state is complete without any generator's.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from stonet.checkpoint import RunFolder
from stonet.config import TrainConfig
from stonet.errors import DataError, StonetError, UsageError
from stonet.forecaster import Lesson, Output, Scene, masked_mae
from stonet.run import Run
from stonet.state import State, Weights, freeze, newest_sound, thaw
from stonet.task import Task
from stonet.windows import Batch, Windows

MAX_BAD_STEPS = 3  # non-finite losses in a row before giving up


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

    def __init__(self, run: Run, task: Task) -> None:
        self.run, self.model, self.nodes = run, run.model, task.nodes
        self.config, self.state = run.config.train, State()
        self.rank = int(os.environ.get("RANK", "0"))  # both are set by torchrun
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.windows = task.windows("train", task.stride)
        self.judges = task.windows("validation", task.stride).thin(self.config.validation_windows)
        self._check_windows()
        whole = self.windows.batches(self.config.batch, self.config.run)
        self.per_epoch = min(self.config.steps or whole, whole)
        self.steps = self.per_epoch * self.config.epochs
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.lr = self.config.lr or self.model.lr
        self.optimiser = torch.optim.Adam(self.parameters, lr=self.lr) if self.parameters else None
        self.best = self._weights()
        self.whole = False  # whether weights, optimiser and state belong to the same step

    def fit(
        self,
        folder: RunFolder | None = None,
        resume: bool = False,
        watch: Watcher = lambda progress: None,
    ) -> State:
        """Train run.model in place, leave its best weights in it, and tell how it went.

        With a folder, states to resume from are kept there; only the first process has one.
        """
        with _process_group(self.size):
            resumed = resume and self._restore(folder)
            if not resumed:
                self.model.fit_closed_form(self.windows, self.judges, self.nodes)
            scene = self.model.scene(self.nodes)  # after the base, which sets the stencils' scale
            self.state.isolated = self.model.isolated(scene)
            try:
                self._loop(scene, folder, watch if self.rank == 0 else lambda progress: None)
            except KeyboardInterrupt:
                if self.whole:
                    self._save(folder)
                raise
        self.model.load_state_dict(self.best)
        self.model.eval()
        return self.state

    def _loop(self, scene: Scene, folder: RunFolder | None, watch: Watcher) -> None:
        network: nn.Module = self.model
        if self.size > 1 and self.optimiser is not None:
            network = DistributedDataParallel(self.model)
        state, judged = self.state, [entry["step"] for entry in self.state.history]
        while True:
            if state.step % self.per_epoch == 0 and state.step not in judged:
                self._judge(scene, watch)
                judged.append(state.step)
                self._save(folder)
            if self.optimiser is None or state.step >= self.steps:
                return
            if state.stale >= self.config.patience:
                return
            self._step(self.optimiser, network, scene, watch)
            if state.step % self.config.save_every == 0:
                self._save(folder)

    def _step(
        self, optimiser: torch.optim.Optimizer, network: nn.Module, scene: Scene, watch: Watcher
    ) -> None:
        state, config = self.state, self.config
        epoch, number = divmod(state.step, self.per_epoch)
        chosen = self.windows.order(config.batch, config.run, config.seed, epoch)[number]
        mine = np.array_split(chosen, self.size)[self.rank]
        key = (config.seed, state.step)
        batch = hide_sensors(self.windows.inputs(mine), config.outage or 0.0, key)
        for group in optimiser.param_groups:
            group["lr"] = self.lr * learning_rate(config, state.step, self.per_epoch, self.steps)
        self.model.train()
        optimiser.zero_grad(set_to_none=True)
        target = self.windows.targets(mine)
        coins = torch.rand(target[0].shape[1], generator=_generator(key))
        lesson = Lesson(*target, state.step / max(self.steps, 1), coins)
        loss, value = masked_loss(network(batch, scene, lesson), batch, *target, config.alpha)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.parameters, config.clip)
        with self._changing():
            if math.isfinite(value) and bool(torch.isfinite(norm)):
                optimiser.step()
                state.bad = 0
                state.epoch_loss.append(value)
            else:
                self._skip()
            state.step += 1
        watch(Progress(state.step, self.steps, value, state.best))

    def _skip(self) -> None:
        """A non-finite step leaves no trace in the weights; several in a row end the training."""
        self.state.bad += 1
        self.state.skipped += 1
        if self.state.bad >= MAX_BAD_STEPS:
            raise StonetError(
                f"The loss was not finite in {MAX_BAD_STEPS} steps in a row, the last one step "
                f"{self.state.step}: training diverged, or the data hold extreme values. Lower "
                "train.lr or train.clip, or set such values to NaN."
            )

    def _judge(self, scene: Scene, watch: Watcher) -> None:
        """Validation error; the best weights so far are kept."""
        state = self.state
        error = self._validate(scene)
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
    def _validate(self, scene: Scene) -> float:
        self.model.eval()
        sums = torch.zeros(2, dtype=torch.float64)
        for chosen in in_batches(self.judges, self.config.batch)[self.rank :: self.size]:
            forecast = self.model(self.judges.inputs(chosen), scene).forecast
            error, count = masked_mae(forecast, *self.judges.targets(chosen))
            sums += torch.stack([error, count]).double()
        if self.size > 1:
            dist.all_reduce(sums)
        return float(sums[0] / sums[1])

    def _check_windows(self) -> None:
        shared = min(self.config.batch, len(self.windows))
        if self.size > shared:
            raise UsageError(
                f"{self.size} processes cannot share batches of {shared} windows. "
                "Start fewer, raise train.batch or give more data."
            )
        _, observed = self.judges.targets(np.arange(len(self.judges)))
        if not observed.any():
            raise DataError(
                "No value was observed in the validation part: when to stop cannot be told. "
                "Choose other shares with data.split, or give data with fewer gaps."
            )

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """An interrupt in here finds half a step, which must never be saved."""
        self.whole = False
        yield
        self.whole = True

    def _weights(self) -> Weights:
        return {name: value.clone() for name, value in self.model.state_dict().items()}

    def _save(self, folder: RunFolder | None) -> None:
        if folder is not None:
            best, optimiser = self.best, self.optimiser
            folder.save_state(freeze(self.state, self.model, best, optimiser, self._alike))

    @property
    def _alike(self) -> dict[str, Any]:
        """What must be alike for a run to go on; how long it goes on may change."""
        config = self.run.config.model_dump()
        for key in ("epochs", "patience", "save_every"):
            config["train"].pop(key)
        data = {
            "name": self.run.dataset,
            "points": len(self.nodes),
            "windows": [len(self.windows), len(self.judges)],
            "scaler": asdict(self.run.scaler),  # it has seen every value
        }
        return {"config": config, "data": data}

    def _restore(self, folder: RunFolder | None) -> bool:
        """Go back to the newest sound state, in every process; False where there is none."""
        data = _from_first_process(b"" if folder is None else newest_sound(folder))
        if data:
            self.state, self.best = thaw(data, self.model, self.optimiser, self._alike)
            self.whole = True
        return self.whole


def masked_loss(
    output: Output, batch: Batch, target: Tensor, mask: Tensor, alpha: float
) -> tuple[Tensor, float]:
    r"""What is minimised, and its value, in normalised units.

        alpha * mean |reconstruction - past| + mean |forecast - future|

    Each is a mean over the observed values of all windows, in all processes; a frame that several
    windows share counts once for each of them.
    """
    terms = [torch.stack(masked_mae(output.forecast, target, mask))]
    weights = [1.0]
    if alpha and output.reconstruction is not None:
        uses = torch.bincount(batch.past.flatten(), minlength=len(batch.frames))
        times = uses[:, None, None].to(batch.frames.dtype)
        again = masked_mae(output.reconstruction, batch.frames, _seen(batch), times)
        terms.append(torch.stack(again))
        weights.append(alpha)
    errors, counts = torch.stack(terms, dim=1)
    sums = torch.stack([errors, counts]).detach()
    processes = dist.get_world_size() if dist.is_initialized() else 1
    if processes > 1:
        dist.all_reduce(sums)
    scale = torch.tensor(weights) / sums[1].clamp(min=1)
    # DDP averages gradients over processes: times their number makes it a sum
    return (scale * errors).sum() * processes, float((scale * sums[0]).sum())


def in_batches(windows: Windows, size: int) -> list[np.ndarray]:
    """All windows in their order, `size` at a time."""
    return [np.arange(s, min(s + size, len(windows))) for s in range(0, len(windows), size)]


def hide_sensors(batch: Batch, share: float, key: tuple[int, int]) -> Batch:
    """The batch with some sensors' values missing throughout, as if they had failed."""
    if share == 0:
        return batch
    kept = torch.rand(batch.frames.shape[1], generator=_generator(key)) >= share
    seen = _seen(batch) & kept[None, :, None]
    return replace(batch, frames=batch.frames * seen, observed=seen)


def _generator(key: tuple[int, int]) -> torch.Generator:
    return torch.Generator().manual_seed(int(np.random.SeedSequence(key).generate_state(1)[0]))


def learning_rate(config: TrainConfig, step: int, per_epoch: int, steps: int) -> float:
    """The factor on train.lr at a step."""
    warm = min(1.0, (step + 1) / (config.warmup + 1))
    if config.schedule == "cosine":
        return warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * step / max(steps, 1))))
    if config.schedule == "step":
        return warm * 0.5 ** (step // (20 * per_epoch))
    return warm


def is_first_process() -> bool:
    """Whether this process is the one that writes and talks: torchrun's rank 0, or the only one."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def _process_group(size: int) -> Iterator[None]:
    """The processes that torchrun has started, as a group; one alone needs none."""
    if size == 1 or dist.is_initialized():
        yield
        return
    dist.init_process_group("gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def _from_first_process(data: bytes) -> bytes:
    """What the first process has, in every process."""
    if not dist.is_initialized():
        return data
    size = torch.tensor(len(data))
    dist.broadcast(size, 0)
    content = torch.zeros(int(size), dtype=torch.uint8)
    content[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else 0
    dist.broadcast(content, 0)
    return content.numpy().tobytes()


def _seen(batch: Batch) -> Tensor:
    everything = torch.ones_like(batch.frames, dtype=torch.bool)
    return everything if batch.observed is None else batch.observed
