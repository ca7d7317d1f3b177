"""On fields that mislead forecasters, the default model is not much worse than any reference.

MAE at most 1.1 times, RMSE at most 1.3 times that of the best reference forecast on the test part,
and no forecast outside the range. `PYTHONPATH=tests:. python -m helpers.reference_ratios` prints
the table.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.difficult_fields import CASES
from helpers.reference_ratios import ratios

from stonet.config import load_config
from stonet.data.field import Dataset
from stonet.evaluation.scoring import evaluate
from stonet.training.fit import fit_run
from stonet.training.task import Task

MOST = {"mae": 1.1, "rmse": 1.3, "range": 1.0}
QUICK = (
    *("train.epochs=1", "train.steps=2", "train.validation_windows=32", "network.latent=16"),
    *("data.past=6", "data.horizon=3"),
)


def check(found: dict[str, float]) -> None:
    beyond = {key: value for key, value in found.items() if value > MOST[key.split()[-1]]}
    assert not beyond


def test_a_model_that_hardly_trained_is_no_worse_than_the_references() -> None:
    field = CASES["white_noise"](0).isel(time=slice(0, 320), station=slice(0, 9))
    task = Task.of(Dataset((field,)), load_config(settings=QUICK))
    trained, _ = fit_run(task, None, False, lambda progress: None)
    errors: dict[str, dict[str, float]] = {}
    for record in evaluate(trained, task):
        if record["lead"] == "all":
            errors.setdefault(record["metric"], {})[record["model"]] = record["value"]
    for metric in ("mae", "rmse"):
        own = errors[metric].pop("stonet")
        assert own <= MOST[metric] * min(errors[metric].values())


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CASES)
def test_the_default_model_is_not_much_worse_than_the_best_reference(name: str, seed: int) -> None:
    check(ratios(CASES[name](seed), seed))


@pytest.mark.parametrize("name", CASES)
def test_difficult_fields_are_reproducible_and_finite(name: str) -> None:
    one, two = CASES[name](3), CASES[name](3)
    assert np.isfinite(one.values).all() and np.array_equal(one.values, two.values)
    assert not np.array_equal(one.values, CASES[name](4).values)
