"""The device of tensors (processor or GPU) and the precision of matrix products."""

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


def pick_device(requested: str) -> torch.device:
    """The device of this process; each process of a machine has a GPU of its own.

    Args:
        requested: `train.device`: "auto", "cpu" or "cuda".

    Raises:
        UsageError: there is no GPU, or there are more processes than GPUs.
    """
    available = torch.cuda.is_available()
    if requested == "cuda" and not available:
        raise UsageError(
            "train.device is 'cuda', but PyTorch sees no GPU here. Use train.device=auto, or "
            "install a PyTorch that was built for this GPU."
        )
    if requested == "cpu" or not available:
        return torch.device("cpu")
    gpus, processes = torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if processes > gpus:  # nccl would refuse this too, but only after long work
        raise UsageError(
            f"{processes} processes would share {gpus} GPU(s) of this machine. Start as many as "
            "there are GPUs, or use train.device=cpu."
        )
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % gpus)


def backend_for(device: torch.device) -> str:
    """The backend of torch.distributed for tensors on this device.

    Args:
        device: of the tensors that processes exchange.
    """
    return "nccl" if device.type == "cuda" else "gloo"


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on `device`; copies to a GPU are asynchronous.

    Args:
        tensor: on any device.
        device: where it is needed.
    """
    if device.type != "cuda" or tensor.device == device:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def check_precision(precision: str, device: torch.device) -> None:
    """Refuse bf16 on a GPU that only emulates it.

    Args:
        precision: "float32" or "bf16".
        device: of the training.
    """
    if precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported(False):
        raise UsageError(
            "train.precision is 'bf16', which this GPU does not support. Use "
            "train.precision=float32."
        )


def autocast(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Matrix products in the given precision; weights and sums keep theirs.

    Args:
        precision: "float32" or "bf16".
        device: of the computation.
    """
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def in_float32(function: Callable[P, T]) -> Callable[P, T]:
    """The function without autocast: bf16 arguments are converted to float32.

    torch.amp.custom_fwd does this for one type of device; this does it for all.

    Args:
        function: its tensors may be arguments in any place.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if not (torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")):
            return function(*args, **kwargs)
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            wide_args: Any = [_to_float32(value) for value in args]
            wide_kwargs: Any = {name: _to_float32(value) for name, value in kwargs.items()}
            return function(*wide_args, **wide_kwargs)

    return call


def _to_float32(value: Any) -> Any:
    low = isinstance(value, Tensor) and value.dtype == torch.bfloat16
    return value.float() if low else value
