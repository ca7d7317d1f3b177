"""The loop: masked MAE with reconstruction, Adam, clipping, schedule, early stopping, exact resume.

One process or many (started by torchrun) run the same code on the same global batches. Everything
random in a step is keyed by (seed, step), so a state is complete without any generator's.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from stonet.checkpoint import RunFolder, pack, unpack
from stonet.config import TrainConfig
from stonet.errors import ModelFileError, StonetError, UsageError
from stonet.forecaster import Output, Scene, masked_mae
from stonet.run import Run
from stonet.task import Task
from stonet.windows import Batch, Windows

MAX_BAD_STEPS = 3  # non-finite losses in a row before giving up


@dataclass(frozen=True)
class Progress:
    """What a step or an epoch tells whoever watches."""

    step: int
    steps: int
    loss: float
    validation: float | None = None  # at the end of an epoch
    best: float = math.inf


@dataclass
class State:
    """All that changes while training."""

    step: int = 0
    best: float = math.inf
    best_step: int = 0
    stale: int = 0  # epochs since the best
    bad: int = 0  # steps skipped in a row
    skipped: int = 0  # steps skipped in all
    epoch_loss: list[float] = field(default_factory=list)
    history: list[dict[str, float]] = field(default_factory=list)

    @property
    def document(self) -> dict[str, Any]:
        return dict(vars(self))


Watcher = Callable[[Progress], None]


def train(
    run: Run,
    task: Task,
    folder: RunFolder | None = None,
    resume: bool = False,
    watch: Watcher = lambda progress: None,
) -> State:
    """Train run.model in place and leave its best weights in it; return how it went."""
    with _world() as (rank, size):
        trainer = _Trainer(run, task, folder if rank == 0 else None, rank, size)
        return trainer.fit(folder, resume, watch if rank == 0 else lambda progress: None)


class _Trainer:
    """One training: model, optimiser, windows and the state they are in."""

    def __init__(
        self, run: Run, task: Task, folder: RunFolder | None, rank: int, size: int
    ) -> None:
        self.config, self.run, self.rank, self.size = task.config.train, run, rank, size
        if size > self.config.batch:
            raise UsageError(
                f"{size} processes cannot share batches of {self.config.batch}: raise train.batch."
            )
        self.model, self.folder, self.state = run.model, folder, State()
        self.windows = task.windows("train", task.config.data.stride)
        self.judge = task.windows("validation").thin(self.config.validation_windows)
        whole = max(1, len(self.windows) // self.config.batch)
        self.per_epoch = min(self.config.steps or whole, whole)
        self.steps = self.per_epoch * self.config.epochs
        self.nodes = task.nodes
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.best = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.optimiser = (
            torch.optim.Adam(self.parameters, lr=self.config.lr) if self.parameters else None
        )

    def fit(self, folder: RunFolder | None, resume: bool, watch: Watcher) -> State:
        resumed = resume and folder is not None and self._restore(folder)
        if not resumed:
            self.model.fit_closed_form(self.windows, self.judge, self.nodes)
        scene = self.model.scene(self.nodes)  # after the base is fitted: it sets the radial weights
        if not resumed:
            self._judge(scene, watch)
        network: nn.Module = self.model
        if self.size > 1 and self.optimiser is not None:
            network = DistributedDataParallel(self.model, broadcast_buffers=False)
        try:
            while self.optimiser is not None and self.state.step < self.steps and not self._stopped:
                self._step(network, scene, watch)
        except KeyboardInterrupt:
            self._save()
            raise
        self.model.load_state_dict(self.best)
        self.model.eval()
        self._save()
        return self.state

    @property
    def _stopped(self) -> bool:
        return self.state.stale >= self.config.patience

    def _step(self, network: nn.Module, scene: Scene, watch: Watcher) -> None:
        state, config = self.state, self.config
        assert self.optimiser is not None
        epoch, number = divmod(state.step, self.per_epoch)
        chosen = self.windows.order(config.batch, config.run, config.seed, epoch)[number]
        mine = np.array_split(chosen, self.size)[self.rank]
        batch = hide_sensors(self.windows.inputs(mine), config.outage, (config.seed, state.step))
        for group in self.optimiser.param_groups:
            group["lr"] = config.lr * learning_rate(config, state.step, self.per_epoch, self.steps)
        self.model.train()
        self.optimiser.zero_grad(set_to_none=True)
        loss, value = self._loss(network(batch, scene), batch, *self.windows.targets(mine))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.parameters, config.clip)
        if math.isfinite(value) and bool(torch.isfinite(norm)):
            self.optimiser.step()
            state.bad = 0
            state.epoch_loss.append(value)
        else:
            self._skip()
        state.step += 1
        if state.step % self.per_epoch == 0:
            self._judge(scene, watch)
            self._save()
        else:
            watch(Progress(state.step, self.steps, value, None, state.best))
            if state.step % config.save_every == 0:
                self._save()

    def _loss(
        self, output: Output, batch: Batch, target: Tensor, mask: Tensor
    ) -> tuple[Tensor, float]:
        """Alpha * reconstruction + prediction, each a mean over the *global* batch's observed values."""
        error, count = masked_mae(output.forecast, target, mask)
        parts = [(1.0, error, count)]
        if self.config.alpha and output.reconstruction is not None:
            uses = torch.bincount(batch.past.flatten(), minlength=len(batch.frames))
            seen = (
                torch.ones_like(batch.frames, dtype=torch.bool)
                if batch.observed is None
                else batch.observed
            )
            weight = uses.to(batch.frames.dtype)[
                :, None, None
            ]  # a shared frame counts for each window
            parts.append(
                (self.config.alpha, *masked_mae(output.reconstruction, batch.frames, seen, weight))
            )
        sums = torch.stack(
            [torch.stack([error.detach(), count.detach()]) for _, error, count in parts]
        )
        if self.size > 1:
            dist.all_reduce(sums)
        counts = sums[:, 1].clamp(min=1)
        # DDP averages gradients over processes: times their number makes it a sum
        loss = torch.stack(
            [w * e * self.size / c for (w, e, _), c in zip(parts, counts, strict=True)]
        ).sum()
        value = sum(
            w * float(s / c) for (w, _, _), s, c in zip(parts, sums[:, 0], counts, strict=True)
        )
        return loss, float(value)

    def _skip(self) -> None:
        """A non-finite step leaves no trace in the weights; several in a row end the training."""
        self.state.bad += 1
        self.state.skipped += 1
        if self.state.bad >= MAX_BAD_STEPS:
            raise StonetError(
                f"The loss was not finite in {MAX_BAD_STEPS} steps in a row (step {self.state.step}). "
                "Lower train.lr, or look for extreme values with `stonet evaluate`."
            )

    def _judge(self, scene: Scene, watch: Watcher) -> None:
        """Validation error; the best weights so far are kept."""
        state = self.state
        error = self._validate(scene)
        loss = sum(state.epoch_loss) / max(len(state.epoch_loss), 1)
        state.history.append({"step": state.step, "train": loss, "validation": error})
        state.epoch_loss = []
        if error < state.best:
            state.best, state.best_step, state.stale = error, state.step, 0
            self.best = {name: value.clone() for name, value in self.model.state_dict().items()}
        else:
            state.stale += 1
        watch(Progress(state.step, self.steps, loss, error, state.best))

    @torch.no_grad()
    def _validate(self, scene: Scene) -> float:
        self.model.eval()
        sums = torch.zeros(2, dtype=torch.float64)
        for chosen in in_batches(self.judge, self.config.batch)[self.rank :: self.size]:
            forecast = self.model(self.judge.inputs(chosen), scene).forecast
            error, count = masked_mae(forecast, *self.judge.targets(chosen))
            sums += torch.stack([error, count]).double()
        if self.size > 1:
            dist.all_reduce(sums)
        return float(sums[0] / sums[1].clamp(min=1))

    def _save(self) -> None:
        if self.folder is None:
            return
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        tensors |= {f"best.{k}": v for k, v in self.best.items()}
        if self.optimiser is not None:
            for number, values in self.optimiser.state_dict()["state"].items():
                tensors |= {f"adam.{number}.{key}": value for key, value in values.items()}
        document = {"state": self.state.document, "config": self._fingerprint}
        self.folder.save_state(pack(tensors, document))

    @property
    def _fingerprint(self) -> dict[str, Any]:
        """What must be alike for a run to go on; how long it goes on may change."""
        config = self.run.config.model_dump()
        for key in ("epochs", "patience", "save_every"):
            config["train"].pop(key)
        return config | {"points": len(self.nodes), "dataset": self.run.dataset}

    def _restore(self, folder: RunFolder) -> bool:
        """Go back to the newest sound state; False where there is none."""
        damaged: ModelFileError | None = None
        for source, data in folder.states():
            try:
                tensors, document = unpack(data, source)
            except ModelFileError as error:
                damaged = error
                continue
            self._check_same(document["config"])
            self.state = State(**document["state"])
            self.model.load_state_dict(_under("model.", tensors))
            self.best = _under("best.", tensors)
            self._restore_optimiser(_under("adam.", tensors))
            return True
        if damaged is not None:
            raise damaged
        return False

    def _restore_optimiser(self, tensors: dict[str, Tensor]) -> None:
        if self.optimiser is None or not tensors:
            return
        values: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            number, key = name.split(".")
            values.setdefault(int(number), {})[key] = tensor
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": values, "param_groups": groups})

    def _check_same(self, saved: dict[str, Any]) -> None:
        now = _plain(self._fingerprint)
        for key in sorted(set(saved) | set(now)):
            if saved.get(key) != now.get(key):
                raise UsageError(
                    f"Cannot resume: '{key}' was {saved.get(key)} and is now {now.get(key)}. "
                    "Resume with the same data and settings, or train into another folder."
                )


def in_batches(windows: Windows, size: int) -> list[np.ndarray]:
    """All windows in their order, `size` at a time."""
    return [np.arange(s, min(s + size, len(windows))) for s in range(0, len(windows), size)]


def hide_sensors(batch: Batch, share: float, key: tuple[int, int]) -> Batch:
    """The batch with some sensors' values missing throughout, as if they had failed."""
    if share == 0:
        return batch
    generator = torch.Generator().manual_seed(int(np.random.SeedSequence(key).generate_state(1)[0]))
    kept = torch.rand(batch.frames.shape[1], generator=generator) >= share
    seen = (
        torch.ones_like(batch.frames, dtype=torch.bool)
        if batch.observed is None
        else batch.observed
    )
    seen = seen & kept[None, :, None]
    return replace(batch, frames=batch.frames * seen, observed=seen)


def learning_rate(config: TrainConfig, step: int, per_epoch: int, steps: int) -> float:
    """The factor on train.lr at a step."""
    warm = min(1.0, (step + 1) / (config.warmup + 1))
    if config.schedule == "cosine":
        return warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * step / max(steps, 1))))
    if config.schedule == "step":
        return warm * 0.5 ** (step // (20 * per_epoch))
    return warm


def is_first_process() -> bool:
    """Whether this process is the one that writes and talks (torchrun's rank 0, or the only one)."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def _world() -> Iterator[tuple[int, int]]:
    """This process's rank and the number of processes, as torchrun has set them."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield 0, 1
        return
    started = not dist.is_initialized()
    if started:
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield dist.get_rank(), size
    finally:
        if started:
            dist.destroy_process_group()


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _plain(value: Any) -> Any:
    """Tuples as lists, as JSON gives them back."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value
