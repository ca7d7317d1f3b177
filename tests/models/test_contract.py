"""The contract of `Forecaster`: every registered model keeps it, and violations are found."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from helpers.contracts import Case, small_field
from torch import Tensor, nn

from stonet.config import Config
from stonet.data.batch import Batch
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.models import contract
from stonet.models.contract import CHECKS, check_forecaster, make_case
from stonet.models.forecaster import Encoding, Forecaster, Graphs, QueryGraph, narrow
from stonet.models.registry import MODELS
from stonet.models.stonet import STONetwork
from stonet.models.stonet_graphs import QueriesGraph

PLACES = {"plane": ("plane", 1), "sphere": ("sphere", 2)}  # kind and channels
SMALLER = {  # settings that make a model faster
    **dict.fromkeys(("dcrnn", "gcgru"), ("baseline.hidden=16",)),
    **dict.fromkeys(("astgcn", "mstgcn", "stgcn"), ("baseline.hidden=16", "baseline.neighbours=6")),
    "clcrn": ("baseline.neighbours=8",),
    "daily": ("data.past=24",),
    **dict.fromkeys(("mign", "nhits", "patchtst"), ("baseline.hidden=8",)),
}
VARIANTS: dict[str, tuple[str, ...]] = {
    "stonet on the newest value": ("network.anchor=last",),
    "stonet on the linear forecast": ("network.anchor=linear",),
    "stonet with dropout": ("network.dropout=0.2",),
    "stonet without encoder": ("network.layers=0",),
    "stonet with two layers": ("network.layers=2", "graph.levels=1"),
    "stonet-paper frame by frame": ("paper.window_time=false", "paper.terms=2"),
    "stonet-paper separable": ("paper.separable=true", "paper.edges=sharp", "paper.frames=3"),
    "stonet-paper merged": ("paper.indices=merged", "paper.linear_path=true", "paper.flags=true"),
    "stonet-paper fixed": ("paper.decoder=fixed",),
    "stonet-paper ode": ("paper.decoder=ode", "paper.terms=1"),
    "stonet-paper diagonal": ("paper.kernel=diag", "paper.layers=2", "graph.levels=1"),
    "stonet-operator on lags": ("operator.basis=lags", "operator.terms=2"),
    "stonet-operator diagonal": ("operator.kernel=diag", "operator.layers=2", "graph.levels=1"),
    "dcrnn on a base": ("baseline.base=persistence", "baseline.hidden=8"),
    "gcgru of one layer and term": ("baseline.layers=1", "baseline.order=1"),
    "tgcn legacy": ("baseline.legacy=true", "baseline.hidden=16"),
    "dlinear on a base": ("baseline.base=ridge",),
    "patchtst on a base": ("baseline.base=ridge", "baseline.hidden=8", "baseline.layers=1"),
    "nhits of one layer": ("baseline.base=persistence", "baseline.hidden=8", "baseline.layers=1"),
    "mign without place": ("baseline.extras=false", "baseline.hidden=6", "baseline.neighbours=4"),
    "clcrn with embeddings": ("baseline.neighbours=8", "baseline.embedding=3"),
}
ON_PLANE = ("frame", "fixed", "ode", "diagonal", "dropout")
EVERY_CHECK = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)


@cache
def model_case(name: str, kind: str) -> contract.Case:
    frames = 320 if name == "daily" else 120
    field = small_field(*PLACES[kind], frames=frames)
    return make_case(MODELS[name], field, (f"model={name}", *SMALLER.get(name, ())))


@cache
def variant_case(variant: str) -> Case:
    name = variant.split()[0]
    kind = "plane" if variant.split()[-1] in ON_PLANE else "sphere"
    tolerance = 2e-3 if variant.endswith("ode") else 1e-8  # steps of the solver adapt to the batch
    return Case.of(
        small_field(*PLACES[kind]), f"model={name}", *VARIANTS[variant], tolerance=tolerance
    )


@EVERY_CHECK
@pytest.mark.parametrize(
    ("name", "kind"),
    [(n, k) for n in MODELS for k in PLACES if (n, k) != ("daily", "plane")],  # needs a calendar
)
def test_every_model_keeps_the_contract(check, name: str, kind: str) -> None:
    check(model_case(name, kind))


@EVERY_CHECK
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_keeps_the_contract(check, variant: str) -> None:
    check(variant_case(variant))


class LastValue(Forecaster):
    """The newest value plus a bias; subclasses break one guarantee each."""

    def __init__(self, config: Config, time_spec: TimeSpec, channels: int, nodes: Points) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))

    def query_graph(self, nodes: Points, queries: Points) -> QueryGraph:
        return QueryGraph()

    def decode(self, encoding: Encoding, batch: Batch, graphs: Graphs) -> Tensor:
        last = batch.frames[batch.past[:, -1]] + self.bias
        return last[:, None].expand(-1, batch.lead.shape[1], -1, -1)


class MixesWindows(LastValue):
    def decode(self, *arguments) -> Tensor:
        result = super().decode(*arguments)
        return result + result.mean(0)


class DependsOnOrder(LastValue):
    def decode(self, *arguments) -> Tensor:
        return super().decode(*arguments) * torch.arange(24)[:, None]


class IsRandom(LastValue):
    def decode(self, *arguments) -> Tensor:
        result = super().decode(*arguments)
        return result + torch.rand_like(result)


class KeepsState(LastValue):
    calls = 0.0

    def decode(self, *arguments) -> Tensor:
        self.calls += 1
        return super().decode(*arguments) + self.calls


class HasUnusedWeights(LastValue):
    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.unused = nn.Parameter(torch.zeros(3))


class LearnsNothing(LastValue):
    def decode(self, *arguments) -> Tensor:
        return super().decode(*arguments) * 0 + 1e-9 * self.bias


def test_a_correct_model_passes() -> None:
    check_forecaster(LastValue)


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (MixesWindows, "windows_are_independent"),
        (DependsOnOrder, "node_order_does_not_matter"),
        (IsRandom, "windows_are_independent"),
        (KeepsState, "windows_are_independent"),
        (HasUnusedWeights, "every_parameter_is_trained"),
        (LearnsNothing, "one_window_can_be_fitted"),
    ],
)
def test_a_broken_guarantee_is_named(broken: type[Forecaster], check: str) -> None:
    with pytest.raises(AssertionError, match=f"{check} on a plane"):
        check_forecaster(broken)


def test_graphs_of_another_model_are_refused() -> None:
    case = model_case("persistence", "plane")
    graphs = case.fitted.graphs(case.nodes)
    with pytest.raises(TypeError, match="Expected NodesGraph, got NodeGraph"):
        model_case("stonet", "plane").fitted(case.windows.inputs(np.array([0])), graphs)
    with pytest.raises(TypeError, match="Expected QueriesGraph, got StencilQueries"):
        narrow(graphs.queries, QueriesGraph)
    assert isinstance(model_case("stonet", "plane").fitted, STONetwork)
