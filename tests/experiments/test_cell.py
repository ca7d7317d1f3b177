"""Cells and results: a result is stale if what decided it has changed."""

from __future__ import annotations

from dataclasses import replace

from helpers.cells import cell, result

from stonet import __version__
from stonet.experiments.cell import Result


def test_relevant_settings_are_those_that_the_model_reads() -> None:
    usual = cell("a.nc").relevant_settings
    for setting in ("train.clip=5.0", "network.latent=9"):  # the default; not of a baseline
        assert cell("a.nc", settings=(setting,)).relevant_settings == usual
    for setting in ("train.clip=4.0", "baseline.hidden=9", "read.points=5"):
        assert cell("a.nc", settings=(setting,)).relevant_settings != usual
    ours = cell("a.nc", "stonet").relevant_settings
    assert cell("a.nc", "stonet", settings=("network.latent=9",)).relevant_settings != ours
    assert cell("a.nc", "stonet", settings=("baseline.hidden=9",)).relevant_settings == ours
    assert {usual["model"], ours["model"]} == {"stgcn", "stonet"}


def test_a_result_is_stale_if_data_version_or_a_setting_changed() -> None:
    one = cell("a.nc")
    versions = {"stonet": __version__}
    fresh = result(one, {}, settings=one.relevant_settings, data_hash="d", versions=versions)
    assert not fresh.is_stale("d") and fresh.is_stale("e")
    assert not Result.from_json(fresh.to_json(), "x").is_stale("d")
    assert replace(fresh, versions={"stonet": "0.0.1"}).is_stale("d")
    earlier = {name: v for name, v in fresh.settings.items() if name != "train.clip"}
    assert not replace(fresh, settings=earlier).is_stale("d")  # before that setting was added
    assert replace(fresh, settings=fresh.settings | {"train.clip": 4.0}).is_stale("d")
    assert replace(fresh, settings=fresh.settings | {"train.gone": 1}).is_stale("d")
