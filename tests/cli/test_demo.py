"""stonet demo --earth: the complete way on simulated stations, in small."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.shell import Shell

import stonet as package
from stonet.cli import demo_earth
from stonet.datasets.stations import stations

SMALL = (
    *("train.epochs=1", "train.steps=2", "data.past=8", "data.horizon=2", "data.stride=12"),
    *("train.race=0", "train.fallback=false", "network.anchor=last", "train.save_every=9"),
    *("network.latent=8", "network.rank=16", "network.kernels=2", "network.hidden=8"),
)
FIGURES = ("map", "globe", "error_by_lead", "training", "series", "reliability")


@pytest.fixture
def printed(stonet: Shell) -> dict[str, object]:
    few = stations(count=40, days=50, unseen=8)
    stonet.patch.setattr(demo_earth, "simulate", lambda: few)
    stonet.patch.setattr(demo_earth, "EUROPE", "grid:5,-10,37,42,60")
    words = [word for setting in SMALL for word in ("--set", setting)]
    result = stonet("demo", "--earth", "--json", *words)
    assert result.code == 0, result.err
    return json.loads(result.out)


def test_the_earth_demo_leaves_a_run_with_scores_intervals_and_figures(printed, stonet: Shell):
    run = Path("runs/earth")
    for name in FIGURES:
        assert (run / f"figures/{name}.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((run / "scores.json").read_text())["records"] == printed["records"]
    scored = {(r["model"], r["points"]) for r in printed["records"] if r["metric"] == "mae"}
    assert {("stonet", "unseen-no-history"), ("persistence", "seen")} <= scored
    forecast = package.read(run / "forecast.nc")
    assert len(forecast.points) > 30 and np.isfinite(forecast.values).all()
    answer = stonet("predict", run, *demo_earth.QUESTION, "--json")
    assert answer.code == 0, answer.err
