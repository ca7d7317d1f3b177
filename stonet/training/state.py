"""State: everything that changes during training, as one checksummed blob and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from stonet.errors import ModelFileError, UsageError
from stonet.training.run_folder import RunFolder, pack, unpack
from stonet.training.trained_model import TrainedModel

Weights = dict[str, Tensor]


@dataclass
class State:
    """The progress of a training, besides weights and optimiser.

    Args:
        step: number of steps taken.
        best: validation error.
        best_step: step of the best validation error.
        stale: validations since the best.
        bad: consecutive skipped steps.
        skipped: all skipped steps.
        isolated: points without a neighbour within the radius.
        race: `Race.to_json`.
        spent: seconds of the clock in `schedule.py` on the whole training; this and the next three
            are 0 in a training of epochs, which repeats bit by bit.
        begun: spent before the first step.
        validated: spent before the end of the last validation.
        validating: spent on all validations.
        epoch_loss: since the last validation, by step.
        history: step, train, validation.
    """

    step: int = 0
    best: float = math.inf
    best_step: int = 0
    stale: int = 0
    bad: int = 0
    skipped: int = 0
    isolated: int = 0
    race: dict[str, Any] | None = None
    spent: float = 0.0
    begun: float = 0.0
    validated: float = 0.0
    validating: float = 0.0
    epoch_loss: list[float] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)


def serialise(
    state: State,
    model: nn.Module,
    best: Weights,
    optimisers: Sequence[Optimizer],
    requirements: Mapping[str, Any],
) -> bytes:
    """The whole training as one blob.

    Args:
        state: the progress.
        model: with the current weights.
        best: the weights of the lowest validation error.
        optimisers: with their moments; none if nothing is trained.
        requirements: `compatibility`, checked by `restore`.
    """
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    tensors |= {f"best.{name}": value for name, value in best.items()}
    for part, optimiser in enumerate(optimisers):
        for number, values in optimiser.state_dict()["state"].items():
            prefix = f"optimiser.{part}.{number}"
            tensors |= {f"{prefix}.{key}": value for key, value in values.items()}
    return pack(tensors, {"state": asdict(state), "compatibility": dict(requirements)})


def restore(
    data: bytes,
    model: nn.Module,
    optimisers: Sequence[Optimizer],
    requirements: Mapping[str, Any],
) -> tuple[State, Weights]:
    """Load a serialised training into model and optimisers; return its state and best weights.

    Args:
        data: as saved.
        model: gets the weights.
        optimisers: get their moments.
        requirements: settings and data that must be equal.

    Raises:
        UsageError: if settings or data differ from those of the saved training.
        ModelFileError: if the content does not fit the model.
    """
    tensors, document = unpack(data, "The saved state")
    try:
        _check_compatible(document["compatibility"], requirements)
        model.load_state_dict(_with_prefix("model.", tensors))
        for part, optimiser in enumerate(optimisers):
            moments: dict[int, Weights] = {}
            for name, tensor in _with_prefix(f"optimiser.{part}.", tensors).items():
                number, key = name.split(".")
                moments.setdefault(int(number), {})[key] = tensor
            groups = optimiser.state_dict()["param_groups"]
            optimiser.load_state_dict({"state": moments, "param_groups": groups})
        return State(**document["state"]), _with_prefix("best.", tensors)
    except (KeyError, TypeError, RuntimeError) as error:
        raise ModelFileError(
            f"The saved state does not fit this version of stonet ({error}). Train anew."
        ) from error


def compatibility(trained: TrainedModel, windows: int, validation: int) -> dict[str, Any]:
    """What must be equal for a training to be resumed; its length and device may change.

    Args:
        trained: the model.
        windows: number of training windows.
        validation: number of validation windows.
    """
    config = trained.config.model_dump()
    free = ("epochs", "minutes", "patience", "save_every", "device", "fallback", "final")
    for key in free:
        config["train"].pop(key)
    data = {
        "name": trained.dataset,
        "points": len(trained.nodes),
        "windows": [windows, validation],
        "scaler": asdict(trained.scaler),  # depends on every training value
    }
    return {"config": config, "data": data}


def newest_valid(folder: RunFolder | None, device: torch.device) -> bytes:
    """The newest undamaged state of the folder, in every process; empty if none was saved.

    Args:
        folder: of the first process; None in the others.
        device: through which the processes exchange tensors.

    Raises:
        ModelFileError: if all saved states are damaged.
    """
    return _broadcast(b"" if folder is None else _read_newest(folder), device)


def _read_newest(folder: RunFolder) -> bytes:
    """The newest undamaged state of the folder; empty if none was saved."""
    damage: ModelFileError | None = None
    for source, data in folder.states():
        try:
            unpack(data, source)
            return data
        except ModelFileError as error:
            damage = damage or error
    if damage is not None:
        raise damage
    return b""


def _broadcast(data: bytes, device: torch.device) -> bytes:
    """The bytes of the first process, in every process."""
    if not dist.is_initialized():
        return data
    size = torch.tensor(len(data), device=device)
    dist.broadcast(size, 0)
    content = torch.zeros(int(size), dtype=torch.uint8, device=device)
    if data:
        content.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
    dist.broadcast(content, 0)
    return content.cpu().numpy().tobytes()


def _check_compatible(saved: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Refuse to resume with other settings or data, naming all differences."""
    before, after = _flatten(saved), _flatten(json.loads(json.dumps(current)))
    differences = [
        f"{key} was {before.get(key)} and is now {after.get(key)}"
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
    ]
    if differences:
        raise UsageError(
            f"Cannot resume: {'; '.join(differences)}. "
            "Resume with the same data and settings, or train into another folder."
        )


def _flatten(tree: Mapping[str, Any]) -> dict[str, Any]:
    """{"train": {"lr": 1}} as {"train.lr": 1}."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{inner}": leaf for inner, leaf in _flatten(value).items()}
        else:
            flat[key] = value
    return flat


def _with_prefix(prefix: str, tensors: Weights) -> Weights:
    """The tensors whose names start with the prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
