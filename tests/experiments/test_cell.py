"""Cells and results: keys depend on what decides the scores."""

from __future__ import annotations

from dataclasses import replace

from helpers.cells import cell

from stonet.training.budget import Budget


def test_the_key_depends_on_relevant_settings_only() -> None:
    usual = cell("a.nc")
    key = usual.key("data")
    same = (
        replace(usual, label="other"),
        cell("a.nc", settings=("train.clip=5.0",)),  # the default
        cell("a.nc", settings=("network.latent=9",)),  # ignored by baselines
    )
    other = (
        replace(usual, seed=1),
        replace(usual, training=Budget(epochs=2, steps=4)),
        replace(usual, extra=(("ratio", 0.5),)),
        cell("a.nc", settings=("train.clip=4.0",)),
        cell("a.nc", settings=("baseline.hidden=9",)),
        cell("a.nc", "gcgru"),
    )
    assert {one.key("data") for one in same} == {key}
    assert key not in {one.key("data") for one in other} and key != usual.key("other data")
    ours, wider = cell("a.nc", "stonet"), cell("a.nc", "stonet", settings=("network.latent=9",))
    assert ours.key("data") != wider.key("data")
    assert ours.key("data") == cell("a.nc", "stonet", settings=("baseline.hidden=9",)).key("data")
