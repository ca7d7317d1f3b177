"""Small tasks and trained models, and the contract cases of `stonet.models.contract` on them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from stonet.config import load_config
from stonet.data.field import Dataset, Field
from stonet.models import contract
from stonet.models.contract import (
    CHECKS,
    HOUR,
    START,
    as_float64,
    forecast,
    perturb,
    small_field,
    small_points,
    with_gaps,
)
from stonet.models.registry import build_model
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel

__all__ = [
    "CHECKS",
    "HOUR",
    "START",
    "Case",
    "FakeGpuTensor",
    "as_float64",
    "fitted_model",
    "forecast",
    "perturb",
    "perturbed_model",
    "small_field",
    "small_points",
    "small_task",
    "with_gaps",
]


def small_task(field: Field, *settings: str, unseen: tuple[int, ...] = ()) -> Task:
    return Task.of(Dataset((field,), "small", unseen), load_config("tiny", settings=settings))


def fitted_model(task: Task) -> TrainedModel:
    """As training starts: closed forms fitted, no step taken."""
    trained = TrainedModel.untrained(task)
    trained.model.fit_closed_form(task.windows("train"), task.windows("validation"), trained.nodes)
    return trained


def perturbed_model(*settings: str) -> TrainedModel:
    """STONet with perturbed parameters, on a sphere with two channels."""
    trained = fitted_model(small_task(small_field("sphere", channels=2), *settings))
    perturb(trained.model)
    return trained


@dataclass(frozen=True, kw_only=True)
class Case(contract.Case):
    """A contract case made from a task, with the TrainedModel around its model."""

    trained: TrainedModel

    @staticmethod
    def of(field: Field, *settings: str, tolerance: float = 1e-8) -> Case:
        task = small_task(field, *settings)
        trained = fitted_model(task)
        arguments = trained.config, trained.time_spec, len(trained.channels), trained.nodes
        return Case(
            fitted=trained.model,
            rebuild=lambda: build_model(*arguments),
            windows=task.windows("train"),
            nodes=trained.nodes,
            tolerance=tolerance,
            trained=trained,
        )


class FakeGpuTensor(torch.Tensor):
    """A tensor in host memory that claims to be on a GPU, to test the computations made there."""

    @property
    def device(self) -> torch.device:
        return torch.device("cuda")


# Former names, still used by tests of other packages.
double, stirred, fitted_run, stirred_run = as_float64, perturb, fitted_model, perturbed_model
