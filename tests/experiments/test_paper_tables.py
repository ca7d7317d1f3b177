"""The numbers of the paper's tables."""

from __future__ import annotations

import pytest

from stonet.experiments import paper_tables


def test_the_papers_improvements_are_the_printed_ones() -> None:
    """Improvements as Table 3 prints them, but for its misprint on Humidity."""
    printed = [10.2703, 18.4035, 23.2375, 5.6941, -0.1811, 8.0543]
    improvements = [paper_tables.improvement(name) for name in paper_tables.UNITS]
    assert improvements == pytest.approx(printed, abs=1e-4)
    for seen, unseen, deviation in paper_tables.INDUCTIVE.values():
        assert 100 * (unseen - seen) / seen == pytest.approx(deviation, abs=1e-3)
