"""The model card: facts of data, scores, budget, limits and use, as they are in the run folder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from helpers.contracts import fitted_model, small_field, small_task

from stonet.training.fit import summary
from stonet.training.model_card import facts, model_card
from stonet.training.state import State


def test_facts_count_what_training_may_see() -> None:
    field = small_field("sphere", frames=200)
    values = field.values.copy()
    values[:70:2, 3:] = np.nan  # of the training part and its seen points
    attrs = {"title": "Waves", "licence": "CC0", "institution": "nobody"}
    field = type(field)(**(vars(field) | {"values": values, "mask": None, "attrs": attrs}))
    task = small_task(field, unseen=(0, 1))
    found = facts(task)
    frames = sum(len(part.times) for part in task.parts["train"])
    assert found["frames"] == frames and found["held_out"] == 2
    assert found["missing"] == round(35 * 21 / (frames * 22), 4)
    assert (found["title"], found["licence"]) == ("Waves", "CC0") and "institution" not in found
    assert found["first"] == "2020-09-13 12:00"


def test_the_card_tells_data_scores_budget_limits_and_use() -> None:
    field = small_field("sphere", frames=200)
    task = small_task(field, "train.minutes=3", "train.seed=5")
    trained = fitted_model(task)
    state = State(best=0.25, step=17)
    card = model_card(trained, summary(state, task))
    for fact in (
        f"validation MAE (normalised): 0.25000\n- that is {0.25 * trained.scaler.std[0]:.4g} K",
        "budget: 3 CPU minutes at most; 17 steps taken",
        "seed 5",
        "licence: not recorded in the data",
        "leads up to",
        "less than a year",
        'stonet.STONet.from_pretrained("OWNER/NAME")',
    ):
        assert fact in card, card
    assert [line for line in card.splitlines() if line.startswith("## ")] == [
        "## Data", "## Limits", "## Use",
    ]  # fmt: skip


def test_a_run_without_facts_has_a_shorter_card() -> None:
    task = small_task(small_field(channels=2))
    trained = replace(fitted_model(task), dataset="old")
    card = model_card(trained, {})
    assert "## Data" not in card and "# stonet trained on old" in card
    assert "that is" not in card  # two channels have no common unit
