"""A model that is larger than its stored weights is refused before its memory is allocated."""

from __future__ import annotations

import pytest
import torch

from stonet.training.allocation import MAX_RATIO, SPARE_BYTES, SPARE_TENSORS, allocation_limited


def test_a_model_of_the_stored_size_is_built_as_without_a_limit() -> None:
    def build() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.GRU(3, 5)

    expected = build().state_dict()
    with allocation_limited(expected):
        built = build().state_dict()
    assert all(torch.equal(built[name], tensor) for name, tensor in expected.items())


def test_a_tensor_beyond_the_limit_is_never_made() -> None:
    width = 10**9  # 4 exabytes
    with allocation_limited({}), pytest.raises(ValueError, match="far larger model"):
        torch.nn.Linear(width, width)


def test_bytes_and_tensors_add_up() -> None:
    stored = {"weight": torch.zeros(2**20)}
    half = (SPARE_BYTES + MAX_RATIO * stored["weight"].nbytes) // 8 + 1  # numbers of 4 bytes
    with allocation_limited(stored), pytest.raises(ValueError, match="far larger model"):
        for _ in range(2):
            torch.empty(half)
    with allocation_limited(stored), pytest.raises(ValueError, match="far larger model"):
        for _ in range(SPARE_TENSORS + MAX_RATIO + 1):
            torch.empty(1)
