"""A limit of what building a model may allocate, before its weights are known to fit.

The sizes in a foreign config.json could ask for any amount of memory. The weights that are stored
tell how large the model can be; a model that asks for far more is refused as it is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

SPARE_BYTES, SPARE_TENSORS = 2**28, 10_000  # beyond the weights, such as graphs of the points
MAX_RATIO = 8  # of what building allocates to what is stored
FACTORIES = {"empty", "zeros", "ones", "full", "rand", "randn", "randint", "eye", "arange"}
FACTORIES |= {"empty_strided", "new_empty", "new_zeros", "new_ones", "new_full", "randperm"}


@contextmanager
def allocation_limited(stored: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Refuse to allocate far more tensors, or far more bytes, than these weights have.

    Args:
        stored: the weights, which tell how large the model can be.

    Raises:
        ValueError: as soon as the limit is exceeded; the memory is not allocated.

    Example:
        >>> with allocation_limited({"weight": torch.zeros(3)}):
        ...     torch.nn.Linear(10**6, 10**6)
        Traceback (most recent call last):
        ValueError: config.json describes a far larger model than the weights do
    """
    size = sum(tensor.nbytes for tensor in stored.values())
    limits = MAX_RATIO * size + SPARE_BYTES, MAX_RATIO * len(stored) + SPARE_TENSORS
    with _Limit(*limits):
        yield


class _Limit(TorchDispatchMode):
    """Adds up what the operations ask for that create tensors."""

    def __init__(self, size: int, tensors: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.size, self.tensors = size, tensors

    def __torch_dispatch__(
        self,
        operation: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if operation.overloadpacket.__name__ in FACTORIES:
            self.size -= _bytes_of(operation.overloadpacket, args, kwargs)
            self.tensors -= 1
            if self.size < 0 or self.tensors < 0:
                raise ValueError("config.json describes a far larger model than the weights do")
        return operation(*args, **kwargs)


def _bytes_of(operation: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> int:
    """Bytes of the tensor that an operation makes: the same on a device without memory."""
    with _disable_current_modes():
        made = operation(*args, **{**kwargs, "device": torch.device("meta")})
    return int(made.nbytes)
