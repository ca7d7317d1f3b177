"""Where tensors live, the processor or a GPU where there is one, and in which precision."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from stonet.errors import UsageError

P = ParamSpec("P")
T = TypeVar("T")


def pick_device(asked: str) -> torch.device:
    """What train.device means here; each process of a machine has a GPU of its own."""
    available = torch.cuda.is_available()
    if asked == "cuda" and not available:
        raise UsageError(
            "train.device is 'cuda', but PyTorch sees no GPU here. Use train.device=auto, or "
            "install a PyTorch that was built for this GPU."
        )
    if asked == "cpu" or not available:
        return torch.device("cpu")
    there, here = torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if here > there:  # which nccl would refuse, but only after long work
        raise UsageError(
            f"{here} processes would share {there} GPU(s) of this machine. Start as many as there "
            "are GPUs, or use train.device=cpu."
        )
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % there)


def backend_for(device: torch.device) -> str:
    """How processes exchange tensors."""
    return "nccl" if device.type == "cuda" else "gloo"


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor there; on its way to a GPU nobody waits for it."""
    if device.type != "cuda" or tensor.device == device:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def check_precision(precision: str, device: torch.device) -> None:
    """Refuse bf16 on a GPU that only pretends to have it."""
    if precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported(False):
        raise UsageError(
            "train.precision is 'bf16', but this GPU has no such numbers. Use "
            "train.precision=float32."
        )


def autocast(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """In here matrix products are made in that precision; weights and sums stay as they are."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def in_float32(function: Callable[P, T]) -> Callable[P, T]:
    """The function as if there were no autocast: what comes to it in bf16 is widened.

    torch.amp.custom_fwd does so for one kind of device; this does for all, and for any function.
    """

    @wraps(function)
    def call(*given: P.args, **named: P.kwargs) -> T:
        if not (torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")):
            return function(*given, **named)
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            wide: Any = [_widened(value) for value in given]
            also: Any = {name: _widened(value) for name, value in named.items()}
            return function(*wide, **also)

    return call


def _widened(value: Any) -> Any:
    low = isinstance(value, Tensor) and value.dtype == torch.bfloat16
    return value.float() if low else value
