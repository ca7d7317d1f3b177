"""Benchmarks: peers compute what ours does, timings take turns, the page follows the records."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.paths import ROOT

from benchmarks import harness, hindcast, serve, variants
from benchmarks.data import weather
from benchmarks.operator import Decoder, compare_operator, max_errors
from benchmarks.report import Goal, page, records_table
from benchmarks.scaling import cost_terms, fit_cost_law
from stonet.errors import StonetError

DOCS = ROOT / "docs"
PEERS = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyG's own, at import


@PEERS
@pytest.mark.parametrize("name", ["encoder", "decoder", "kernel sum"])
def test_every_peer_computes_the_same_result_in_float64(name: str) -> None:
    errors = max_errors(name, n=30, d=4, hidden=6, degree=7.0)
    errors.pop("gno", None)  # its mean divides by single-precision counts
    assert set(errors) >= ({"pairs", "lags"} if name == "decoder" else {"literal", "autograd"})
    assert max(errors.values()) < 1e-12


def test_irregular_times_have_one_lag_per_pair_of_times() -> None:
    regular, irregular = Decoder(8, 4), Decoder(8, 4, regular=False)
    assert (regular.factor("lags"), irregular.factor("lags")) == (23 / 6, 144 / 6)
    assert regular.factor("pairs") == 144 / 6


@PEERS
def test_records_hold_the_case_and_its_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "ROUNDS", 1)
    records = compare_operator("encoder", n=24, d=4, hidden=4, degree=5.0)
    keys = ("bench", "n", "d", "threads", "peer", "time_ratio", "memory_ratio", "gemm_share")
    for record in records:
        assert tuple(record)[:8] == keys
        assert (record["n"], record["d"], record["threads"]) == (24, 4, 1)
        assert record["time_ratio"] > 0


def test_variants_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that only the work advances."""
    monkeypatch.setattr(harness, "ROUNDS", 3)
    monkeypatch.setattr(harness, "MIN_TURN_SECONDS", 0.05)
    order: list[str] = []
    seconds = {"a": 0.06, "b": 0.02}
    clock = SimpleNamespace(perf_counter=lambda: sum(seconds[name] for name in order))
    clock.process_time = clock.perf_counter
    monkeypatch.setattr(harness, "time", clock)
    threads = torch.get_num_threads()
    timings = harness.alternate({name: partial(order.append, name) for name in seconds})
    assert "".join(order) == "ab" + "b" + "abb" * 3  # short calls are repeated within a turn
    assert {name: timings[name].wall for name in timings} == pytest.approx(seconds)
    assert torch.get_num_threads() == threads


def test_hindcasts_of_two_periods_are_measured() -> None:
    """The benchmark at a small size: stores, training, hindcasts, comparison."""
    steps: list[str] = []
    (record,) = hindcast.measure(lambda done, total, text: steps.append(text), 16, 300, 240)
    assert steps[2:] == ["240 hindcasts", "300 hindcasts"]
    assert record["forecasts"] == 300 and record["max_error"] < 1e-5
    assert 0.8 < record["peak_over_a_months"] < 1.2 and record["ms_each"] < 1e3


def test_a_service_is_measured_at_a_small_size() -> None:
    first, click = serve.measure(lambda done, total, text: None, 16, 300)
    assert 0 < first["seconds"] <= first["slowest_seconds"] and 0 < click["ms"] < 1e4


@pytest.mark.parametrize("variant", [variants.bf16, variants.compiled, variants.twin])
def test_variants_are_measured_against_the_plain_step(variant: Callable[..., dict]) -> None:
    """With the eager backend: the real compiler takes minutes."""
    arguments = {"n": 32} if variant is variants.bf16 else {"n": 32, "backend": "eager"}
    arguments |= {"d": 4, "hidden": 4, "frames": 2} if variant is variants.twin else {}
    ratios = harness.in_process(variant, arguments, OMP_NUM_THREADS="1")
    assert 0 < ratios["lowest"] <= ratios["time_ratio"] <= ratios["highest"]
    assert ratios.get("max_error", 0.0) < 1e-5


def test_a_failure_in_a_process_of_its_own_is_reported() -> None:
    with pytest.raises(StonetError, match="unexpected keyword"):
        harness.in_process(variants.bf16, {"wrong": 1})


def test_goals_are_measured_by_their_worst_record() -> None:
    records = [{"bench": "x", "n": 1, "v": 3.0}, {"bench": "x", "n": 2, "v": 5.0}, {"bench": "y"}]
    assert Goal("", "bench=x", "v", least=4.0).measured(records) == 3.0
    assert Goal("", "bench=x", "v", most=4.0).measured(records) == 5.0
    assert "missed" in Goal("", "bench=x", "v", least=4.0).row(records)[3]
    assert "reached" in Goal("", "bench=x n=2", "v", least=4.0).row(records)[3]
    assert "not measured" in Goal("", "bench=z", "v", least=4.0).row(records)[3]


def test_the_cost_law_is_linear_in_points_and_recovers_its_constants() -> None:
    config = weather(64).config
    one, two = (np.array(cost_terms(n, config, 12, 12)) for n in (1000, 2000))
    np.testing.assert_allclose(two, 2 * one)
    rows = np.array([[1.0, 2.0, 1.0], [2.0, 1.0, 1.0], [4.0, 4.0, 1.0], [3.0, 9.0, 1.0]])
    truth = rows @ np.array([0.3, 0.7, 0.1])
    np.testing.assert_allclose(fit_cost_law(rows, truth), truth)


def test_the_page_agrees_with_the_committed_records() -> None:
    """`python -m benchmarks.report` writes it."""
    result = json.loads((DOCS / "performance.json").read_text())
    assert records_table(result["records"]).row_count == len(result["records"])
    assert page(result) == (DOCS / "performance.md").read_text()


def test_operations_of_forward_backward_and_in_place_products_are_counted() -> None:
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


def test_help_is_available() -> None:
    command = [sys.executable, "-m", "benchmarks", "-h"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "operator" in done.stdout
