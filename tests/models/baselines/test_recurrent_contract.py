"""TGCN, GCGRU and DCRNN as forecasters: every model's battery, and training to the last bit."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from helpers.contracts import BATTERY, Case, small_field, small_task

from stonet.training.fit import fit_run

PLACES = {"plane": ("plane", 1), "sphere, two channels": ("sphere", 2)}
SMALL = "baseline.hidden=16"
VARIANTS: dict[str, tuple[str, ...]] = {
    "dcrnn": (SMALL,),
    "gcgru": (SMALL,),
    "tgcn": (),  # as large as it is by default
    "dcrnn on a base": ("baseline.base=persistence", "baseline.hidden=8"),
    "gcgru of one layer and term": ("baseline.layers=1", "baseline.order=1"),
    "tgcn legacy": ("baseline.legacy=true", SMALL),
}


@cache
def case_of(place: str, variant: str) -> Case:
    """Made once for all tests; nobody changes its model."""
    return Case.of(small_field(*PLACES[place]), f"model={variant.split()[0]}", *VARIANTS[variant])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("variant", ["dcrnn", "gcgru", "tgcn"])
@pytest.mark.parametrize("truth", BATTERY, ids=lambda truth: truth.__name__)
def test_recurrent_rivals_keep_the_promises(truth, variant: str, place: str) -> None:
    truth(case_of(place, variant))


@pytest.mark.parametrize("variant", list(VARIANTS)[3:])
@pytest.mark.parametrize("truth", BATTERY, ids=lambda truth: truth.__name__)
def test_their_variants_keep_them_too(truth, variant: str) -> None:
    truth(case_of("sphere, two channels", variant))


def test_training_is_the_same_to_the_last_bit() -> None:
    settings = "model=dcrnn", "baseline.hidden=4", "train.epochs=1", "train.steps=3"
    one, again = (
        fit_run(small_task(small_field(nodes=8), *settings), None, False, lambda _: None)
        for _ in range(2)
    )
    assert one[1].history == again[1].history
    weights = again[0].model.state_dict()
    assert all(torch.equal(value, weights[key]) for key, value in one[0].model.state_dict().items())
