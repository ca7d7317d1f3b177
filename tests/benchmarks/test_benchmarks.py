"""The benchmarks measure the right thing: peers equal ours, figures follow from what they say."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest
import torch
from helpers.paths import ROOT

from benchmarks import harness, hindcast
from benchmarks.cost import predicted, terms
from benchmarks.data import weather
from benchmarks.goals import Goal
from benchmarks.operator import Decoder, compare_operator, worst_error
from benchmarks.report import page

DOCS = ROOT / "docs"
PEERS = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyG's own, at import


@PEERS
@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_every_peer_computes_the_same_in_float64(name: str) -> None:
    errors = worst_error(name, n=30, d=4, hidden=6, degree=7.0)
    errors.pop("gno", None)  # its mean divides by single-precision counts
    assert set(errors) >= ({"literal", "autograd"} if name == "encoder" else {"pairs", "lags"})
    assert max(errors.values()) < 1e-12


def test_irregular_times_have_a_lag_for_every_pair() -> None:
    even, uneven = Decoder(8, 4), Decoder(8, 4, regular=False)
    assert (even.factor("lags"), uneven.factor("lags")) == (23 / 6, 144 / 6)
    assert even.factor("pairs") == 144 / 6


@PEERS
def test_a_record_tells_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "ROUNDS", 1)
    found = compare_operator("encoder", n=24, d=4, hidden=4, degree=5.0)
    keys = ("bench", "n", "d", "threads", "peer", "time_ratio", "memory_ratio", "gemm_share")
    for record in found:
        assert tuple(record)[:8] == keys
        assert (record["n"], record["d"], record["threads"]) == (24, 4, 1)
        assert record["time_ratio"] > 0


def test_variants_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "ROUNDS", 3)
    monkeypatch.setattr(harness, "SHORT", 0.05)
    order: list[str] = []
    threads = torch.get_num_threads()

    def work(name: str, seconds: float) -> None:
        order.append(name)
        time.sleep(seconds)

    clock = harness.alternate({"a": partial(work, "a", 0.06), "b": partial(work, "b", 0.02)})
    assert "".join(order) in ("ab" + "b" + "abb" * 3, "ab" + "b" + "ab" * 3)  # short work, often
    assert 0.02 <= clock["b"].wall < 0.06 <= clock["a"].wall  # of one call
    assert torch.get_num_threads() == threads


def test_a_year_of_hindcasts_is_told_by_its_commands() -> None:
    """The same in small: stores, training, hindcasts and a look at some of them."""
    steps: list[str] = []
    (record,) = hindcast.measure(lambda done, total, text: steps.append(text), 16, 300, 240)
    assert steps[2:] == ["240 hindcasts", "300 hindcasts"]
    assert record["forecasts"] == 300 and record["max_error"] < 1e-5
    assert 0.8 < record["peak_over_a_months"] < 1.2 and record["ms_each"] < 1e3


@pytest.mark.parametrize("order", ["bf16", "compiled", "twin"])
def test_a_variant_is_measured_beside_what_it_varies(order: str) -> None:
    """With a compiler that only looks: the real one takes minutes."""
    more = {} if order == "bf16" else {"backend": "eager"}
    more |= {"d": 4, "hidden": 4, "frames": 2} if order == "twin" else {}
    found = harness.in_child({"do": order, "n": 32, **more}, OMP_NUM_THREADS="1")
    assert 0 < found["lowest"] <= found["time_ratio"] <= found["highest"]
    assert found.get("max_error", 0.0) < 1e-5


def test_a_goal_is_judged_by_its_worst_record() -> None:
    records = [{"bench": "x", "n": 1, "v": 3.0}, {"bench": "x", "n": 2, "v": 5.0}, {"bench": "y"}]
    assert Goal("", "bench=x", "v", least=4.0).measured(records) == 3.0
    assert Goal("", "bench=x", "v", most=4.0).measured(records) == 5.0
    assert "missed" in Goal("", "bench=x", "v", least=4.0).line(records)
    assert "reached" in Goal("", "bench=x n=2", "v", least=4.0).line(records)
    assert "not measured" in Goal("", "bench=z", "v", least=4.0).line(records)


def test_the_law_is_linear_in_points_and_finds_its_own_constants() -> None:
    config = weather(64).config
    one, two = (np.array(terms(n, config, 12, 12)) for n in (1000, 2000))
    np.testing.assert_allclose(two, 2 * one)
    rows = np.array([[1.0, 2.0, 1.0], [2.0, 1.0, 1.0], [4.0, 4.0, 1.0], [3.0, 9.0, 1.0]])
    truth = rows @ np.array([0.3, 0.7, 0.1])
    np.testing.assert_allclose(predicted(rows, truth), truth)


def test_the_page_is_made_from_the_committed_records() -> None:
    result = json.loads((DOCS / "performance.json").read_text())
    assert page(result) == (DOCS / "performance.md").read_text()


def test_operations_are_counted_in_products_forward_backward_and_in_place() -> None:
    a = torch.randn(3, 4, requires_grad=True)
    b, c = torch.randn(4, 5), torch.zeros(3, 5)
    many = torch.randn(2, 3, 4), torch.randn(2, 4, 5), torch.zeros(2, 3, 5)
    assert harness.operations(lambda: a @ b) == 2 * 3 * 4 * 5
    assert harness.operations(lambda: (a @ b).sum().backward()) == 2 * (
        2 * 3 * 4 * 5
    )  # b has no gradient
    with torch.no_grad():
        assert harness.operations(lambda: c.addmm_(a, b, alpha=2)) == 2 * 3 * 4 * 5
    assert harness.operations(lambda: many[2].baddbmm_(*many[:2])) == 2 * (2 * 3 * 4 * 5)


@pytest.mark.parametrize("words", [("scale", "-o", "nowhere/x.json"), ("speed",)])
def test_wrong_arguments_are_refused_before_anything_is_measured(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "benchmarks", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("benchmarks: ")
