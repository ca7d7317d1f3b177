"""Sizes of memory, as users write and read them."""

from __future__ import annotations

import pytest

from stonet.errors import UsageError
from stonet.system.resources import memory_budget, parse_size, size_label


def test_sizes_are_parsed_in_binary_and_shown_in_decimal_units() -> None:
    assert [parse_size(t) for t in ("100", "2k", "1.5 MB", "3GiB")] == [
        100, 2048, 1.5 * 2**20, 3 * 2**30,
    ]  # fmt: skip
    assert [size_label(n) for n in (0, 999, 1000, 5e12)] == ["0 bytes", "999 bytes", "1 kB", "5 TB"]
    with pytest.raises(UsageError, match="not a size"):
        parse_size("much")


def test_the_memory_budget_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STONET_MEMORY", "2G")
    assert memory_budget() == 2 * 2**30
    monkeypatch.delenv("STONET_MEMORY")
    assert memory_budget() > 0
