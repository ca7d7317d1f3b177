"""Verdicts follow from the values in the tables."""

from __future__ import annotations

import pytest

from stonet.experiments import EXPERIMENTS
from stonet.experiments.claims import BASELINES, Claim, claims_of, claims_section
from stonet.models.registry import REFERENCE_FORECASTS

EMPTY: dict[str, list] = {name: [] for name in (*EXPERIMENTS, "longer")}


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ({"a": 12.0, "b": 8.0}, "holds"),
        ({"a": 12.0, "b": 2.0}, "holds partly"),  # on every data set, but not by enough
        ({"a": 30.0, "b": -1.0}, "holds partly"),
        ({"a": -3.0, "b": -1.0}, "does not hold"),
        ({"a": 12.0}, "holds where measured"),
        ({}, "not measured"),
    ],
)
def test_verdicts_follow_from_the_values(values: dict[str, float], verdict: str) -> None:
    claim = Claim("It wins", "below all", values, 2, least=0.0, mean_least=9.0)
    assert claim.verdict == verdict
    _, _, _, _, row, *_ = claims_section([claim], ("a", "b"))
    assert verdict in row and row.count("**") == 2 + 2 * sum(v > 0 for v in values.values())


def test_an_upper_bound_is_inclusive_and_small_values_are_noise() -> None:
    assert Claim("", "", {"a": 4.0}, 1, most=4.0).verdict == "holds"
    assert Claim("", "", {"a": 4.01}, 1, most=4.0).verdict == "does not hold"
    for values, verdict in (
        ({"a": 3.0, "b": -4.0}, "within seed variation"), ({"a": 17.0, "b": 3.0}, "holds partly"),
        ({"a": 17.0, "b": 5.0}, "holds"), ({"a": -17.0, "b": 3.0}, "does not hold"),
    ):  # fmt: skip
        assert Claim("", "", values, 2, least=0.0, noise=4.5).verdict == verdict


def test_claims_take_their_values_from_the_tables() -> None:
    line = {"dataset": "wave", "model": "stonet"}
    alone = {"dataset": "wave", "model": "operator"}
    tables = EMPTY | {
        "comparison": [
            line | {"mae": 0.8, "improvement": 20.0, "p": 0.01, "improvement_on_base": 20.0},
            *({"dataset": "wave", "model": name, "mae": 1.6} for name in BASELINES),
            *({"dataset": "wave", "model": name, "mae": 1.0} for name in REFERENCE_FORECASTS),
            {"dataset": "wave", "model": "stgcn+base", "mae": 1.0},
            {"dataset": "wave", "model": "tgcn+base", "mae": 2.0},
        ],
        "longer": [
            line | {"mae": 0.7, "improvement": -7.0, "p": 0.01},
            *(
                {"dataset": "wave", "model": name, "mae": 0.6}
                for name in (*BASELINES, *REFERENCE_FORECASTS)
            ),
        ],
        "inductive": [
            line | {"share": 0.2, "deviation": 3.0, "gain": 12.0},
            line | {"share": 0.5, "deviation": 33.0},
            {"dataset": "wave", "model": "stgcn", "share": 0.2},
        ],
        "irregular": [
            line | {"scenario": "labels", "level": 12, "change": 0.0},
            line | {"scenario": "labels", "level": 6, "change": 4.0},
            line | {"scenario": "labels", "level": 2, "change": 40.0},
            line | {"scenario": "random", "level": 0.25, "change": 5.0},
            line | {"scenario": "outage", "level": 0.5, "change": 50.0},
        ],
        "ablation": [
            alone | {"factor": "levels", "value": "1", "change": 2.0, "default": False},
            alone | {"factor": "alpha", "value": "0.0", "change": 0.0, "default": True},
            alone
            | {
                "model": "default",
                "factor": "levels",
                "value": "1",
                "change": 9.0,
                "default": False,
            },
        ],
        "cost": [{"dataset": "wave", "decoder": "ode", "times": 5.0}],
    }
    claims = claims_of(tables, 1, 1)
    found = [claim.values.get("wave") for claim in claims]
    assert found == pytest.approx(
        [20.0, 50.0, -7.0, 20.0, 3.0, 12.0, 4.0, 5.0, None, None, 2.0, 9.0, None, None, 400.0]
    )
    assert "below on wave" in claims[0].note and "above on wave" in claims[2].note
    assert "too few windows for a test on wave" in claims[3].note
    assert claims[3].verdict == "holds where measured"  # two of eight baselines on the base
    assert "wave 2" in claims[3].note
    others = [{"dataset": "wave", "model": f"{name}+base", "mae": 1.0} for name in BASELINES]
    complete = claims_of(tables | {"comparison": [*tables["comparison"][:-2], *others]}, 1, 1)
    assert complete[3].verdict == "holds"
    lacking = tables | {"comparison": tables["comparison"][:4]}  # without reference forecasts
    assert [c.verdict for c in claims_of(lacking, 1, 1)][:2] == ["not measured"] * 2
    assert {claim.verdict for claim in claims_of(EMPTY, 1, 1)} == {"not measured"}
