"""The task for scoring: unseen are the points that training did not see."""

from __future__ import annotations

import numpy as np
from helpers.small import small_field

from stonet.config import load_config
from stonet.data.field import Dataset
from stonet.data.splits import hold_out
from stonet.evaluation.task import held_out
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel


def test_unseen_are_the_points_that_training_did_not_see() -> None:
    complete = Dataset((small_field(),), "small")
    trained = TrainedModel.untrained(
        Task.of(complete, load_config("tiny", settings=("data.unseen=0.25",)))
    )
    unseen = set(held_out(trained, complete).unseen)
    assert len(unseen) == 5 and len(trained.nodes) == 15
    for lost in range(20):  # a station that no longer reports
        left = np.setdiff1d(np.arange(20), lost)
        found = left[list(held_out(trained, complete.take(left)).unseen)]
        assert set(found.tolist()) == unseen - {lost}
    elsewhere = Dataset((small_field(seed=1),), "other")  # none of the training points
    assert held_out(trained, elsewhere).unseen == hold_out(elsewhere, 0.25).unseen
