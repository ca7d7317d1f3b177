"""Where tensors live: the processor, or a GPU where there is one."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from stonet.errors import UsageError


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
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())


def backend_for(device: torch.device) -> str:
    """How processes exchange tensors."""
    return "nccl" if device.type == "cuda" else "gloo"


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor there; on its way to a GPU nobody waits for it."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
