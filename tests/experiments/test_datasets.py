"""The data of the experiments, and their hash."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from helpers.cells import SMOKE
from helpers.small import small_dataset

from stonet.data.checksum import data_sha256
from stonet.data.field import Dataset
from stonet.errors import UsageError
from stonet.experiments.budgets import EXPERIMENT_BUDGETS
from stonet.experiments.datasets import (
    EXPERIMENT_DATA,
    check_name,
    open_experiment_data,
)


def test_the_hash_depends_on_all_that_models_read() -> None:
    dataset = small_dataset(unseen=3)
    field = dataset.episodes[0]
    usual = data_sha256(dataset)

    def changed(**parts: Any) -> Dataset:
        return replace(dataset, episodes=(replace(field, **parts),))

    values = field.values.copy()
    values[5, 5] += 1
    mask = field.observed.copy()
    mask[7, 7] = ~mask[7, 7]
    others = (
        changed(values=values),
        changed(mask=mask),
        changed(times=field.times + 1),
        changed(units=("K",)),
        replace(dataset, unseen=(0,)),
        replace(dataset, horizon=5),
    )
    assert len({usual, *map(data_sha256, others)}) == 1 + len(others)
    assert data_sha256(replace(dataset, name="other")) == usual
    assert data_sha256(changed(notes=("read",))) == usual


def test_unseen_points_are_kept_only_for_inductive_cells() -> None:
    read = SMOKE.cell("comparison", "wave-short", "stonet").config.read
    plain, inductive = (
        open_experiment_data("wave-short", read, wanted) for wanted in (False, True)
    )
    assert len(plain.points) == 24 and not plain.unseen
    assert len(inductive.points) == 24 and inductive.unseen
    with pytest.raises(UsageError, match="Did you mean 'wind-bhutan'"):
        check_name("wind-butan")


def test_the_published_data_correspond_to_the_papers_six() -> None:
    assert {EXPERIMENT_DATA[name].paper for name in EXPERIMENT_BUDGETS["published"].datasets} == {
        "Wave", "Solar", "Temperature", "Humidity", "Cloud", "Wind",
    }  # fmt: skip
