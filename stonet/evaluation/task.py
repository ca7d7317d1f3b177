"""The task on which a trained model is scored: its split, its scaler, its unseen points."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stonet.data.field import Dataset
from stonet.data.splits import hold_out
from stonet.data.windows import split
from stonet.evaluation.scoring import check_scorable
from stonet.graph.neighbours import own_nodes
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel

ALL = "all"  # the part that is all of the data


def held_out(trained: TrainedModel, dataset: Dataset) -> Dataset:
    """The data set with the points as unseen that the model was not trained on.

    If it was trained on none of them, the share is held out that training held out. If training
    held nothing out, the choice of the data set stays.

    Args:
        trained: the model.
        dataset: its training data or other data.
    """
    share, regions = trained.config.data.unseen, trained.config.data.unseen_regions
    if not share or dataset.points.kind != trained.nodes.kind:
        return hold_out(dataset, share, regions)
    is_trained = own_nodes(dataset.points, trained.nodes) < len(trained.nodes)
    if not is_trained.any():
        return hold_out(dataset, share, regions)
    return replace(dataset, unseen=tuple(np.flatnonzero(~is_trained).tolist()))


def scored_task(trained: TrainedModel, dataset: Dataset, part: str = "test") -> Task:
    """The data set, split and scaled as for training.

    Args:
        trained: the model.
        dataset: on which it is scored.
        part: that will be scored; for "all" the data are not split, however short they are.

    Raises:
        DataError: the data are of another kind than those of training.
    """
    check_scorable(trained, dataset)
    dataset, data = held_out(trained, dataset), trained.config.data
    parts = {ALL: dataset.episodes}
    if part != ALL:
        parts = split(dataset, trained.time_spec, data.split, data.stride or 1)
    return Task(dataset, trained.config, trained.time_spec, trained.scaler, parts)
