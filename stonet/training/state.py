"""State: all that changes while training, as one sealed blob and back, so that a run can go on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from stonet.errors import ModelFileError, UsageError
from stonet.training.run_folder import RunFolder, pack, unpack

Weights = dict[str, Tensor]


@dataclass
class State:
    """Where a training is, besides its weights and its optimiser."""

    step: int = 0
    best: float = math.inf  # validation error
    best_step: int = 0
    stale: int = 0  # epochs since the best
    bad: int = 0  # steps skipped in a row
    skipped: int = 0  # steps skipped in all
    isolated: int = 0  # points that had an empty ball
    epoch_loss: list[float] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)  # step, train, validation


def serialise(
    state: State,
    model: nn.Module,
    best: Weights,
    optimiser: Optimizer | None,
    alike: Mapping[str, Any],
) -> bytes:
    """One blob; `alike` is what must be the same where it is thawed."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    tensors |= {f"best.{name}": value for name, value in best.items()}
    moments = {} if optimiser is None else optimiser.state_dict()["state"]
    for number, values in moments.items():
        tensors |= {f"optimiser.{number}.{key}": value for key, value in values.items()}
    return pack(tensors, {"state": asdict(state), "alike": dict(alike)})


def restore(
    data: bytes, model: nn.Module, optimiser: Optimizer | None, alike: Mapping[str, Any]
) -> tuple[State, Weights]:
    """Bring model and optimiser back to a frozen state; return it, and the best weights so far."""
    tensors, document = unpack(data, "The saved state")
    try:
        _check_compatible(document["alike"], alike)
        model.load_state_dict(_under("model.", tensors))
        if optimiser is not None:
            moments: dict[int, Weights] = {}
            for name, tensor in _under("optimiser.", tensors).items():
                number, key = name.split(".")
                moments.setdefault(int(number), {})[key] = tensor
            groups = optimiser.state_dict()["param_groups"]
            optimiser.load_state_dict({"state": moments, "param_groups": groups})
        return State(**document["state"]), _under("best.", tensors)
    except (KeyError, TypeError, RuntimeError) as error:
        raise ModelFileError(
            f"The saved state does not fit this version of stonet ({error}). Train anew."
        ) from error


def newest_valid(folder: RunFolder) -> bytes:
    """The newest saved state that is not damaged; empty where none was ever saved."""
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


def _check_compatible(saved: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    before, after = _flat(saved), _flat(json.loads(json.dumps(now)))
    differ = [
        f"{key} was {before.get(key)} and is now {after.get(key)}"
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
    ]
    if differ:
        raise UsageError(
            f"Cannot resume: {'; '.join(differ)}. "
            "Resume with the same data and settings, or train into another folder."
        )


def _flat(tree: Mapping[str, Any]) -> dict[str, Any]:
    """{"train": {"lr": 1}} as {"train.lr": 1}."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{inner}": leaf for inner, leaf in _flat(value).items()}
        else:
            flat[key] = value
    return flat


def _under(prefix: str, tensors: Weights) -> Weights:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
