"""Models by name: built in, registered by a call, or added by an entry point of a package."""

from __future__ import annotations

import sys
import warnings

import pytest
from helpers.contracts import small_field, small_points, small_task
from torch import Tensor

from stonet.config import load_config
from stonet.data.batch import Batch
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.errors import UsageError
from stonet.evaluation.comparison import compare
from stonet.experiments import comparison
from stonet.experiments.budgets import EXPERIMENT_BUDGETS
from stonet.models import registry
from stonet.models.contract import check_forecaster
from stonet.models.forecaster import Encoding, Forecaster, Graphs, QueryGraph
from stonet.models.registry import MODELS, build_model, discover_plug_ins, register_model
from stonet.training.budget import Budget
from stonet.training.trained_model import TrainedModel

TIMES = TimeSpec(step=10**9, past=4, horizon=3, calendar=False)
POINTS = small_points("plane", 9)


class Mean(Forecaster):
    """The mean over the past, at the nodes."""

    def __init__(self, config, time_spec, channels, nodes) -> None:
        super().__init__()

    def query_graph(self, nodes: Points, queries: Points) -> QueryGraph:
        return QueryGraph()

    def decode(self, encoding: Encoding, batch: Batch, graphs: Graphs) -> Tensor:
        mean = batch.frames[batch.past].mean(1)
        return mean[:, None].expand(-1, batch.lead.shape[1], -1, -1)


@pytest.fixture(autouse=True)
def restore_models():
    before = dict(MODELS)
    yield
    MODELS.clear()
    MODELS.update(before)
    sys.modules.pop("plug_in", None)


def config_of(name: str):
    return load_config("tiny", settings=[f"model={name}"])


def test_an_unknown_model_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match=r"Unknown model 'stonett'.*Did you mean 'stonet'\?"):
        build_model(config_of("stonett"), TIMES, 1, POINTS)


def test_a_registered_model_is_built_compared_and_saved_by_name() -> None:
    register_model("mean", Mean)
    check_forecaster(MODELS["mean"])
    dataset = small_task(small_field()).dataset
    found = compare(dataset, load_config("tiny"), ["mean", "persistence"], Budget(epochs=1))
    assert [cost.model for cost in found.costs] == ["mean", "persistence"] and not found.skipped
    task = small_task(small_field(), "model=mean")
    assert isinstance(TrainedModel.untrained(task).model, Mean)
    cells = comparison.cells(["wave"], ["mean"], 1, EXPERIMENT_BUDGETS["smoke"])
    assert [(cell.label, cell.model) for cell in cells] == [("mean", "mean")]


def test_a_name_is_given_once() -> None:
    register_model("mean", Mean)
    register_model("mean", Mean)  # the same again, as when a notebook cell is run twice
    for name in ("mean", "stonet"):
        with pytest.raises(UsageError, match=f"named '{name}' exists"):
            register_model(name, lambda *arguments: Mean(*arguments))


def install(folder, entries: str, module: str = "") -> None:
    """A package with these entry points, as pip leaves it in site-packages."""
    (folder / "plug_in.py").write_text(module)
    info = folder / "my_plug_in-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plug-in\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.ENTRY_POINTS}]\n{entries}\n")


def test_an_entry_point_adds_a_model_that_is_loaded_when_built(tmp_path, monkeypatch) -> None:
    install(tmp_path, "plugged = plug_in:build", PLUG_IN)
    monkeypatch.syspath_prepend(str(tmp_path))
    discover_plug_ins()
    assert "plugged" in MODELS and "plug_in" not in sys.modules
    model = build_model(config_of("plugged"), TIMES, 1, POINTS)
    assert type(model).__name__ == "Plugged" and isinstance(model, Forecaster)


PLUG_IN = """
from stonet.models.forecaster import Forecaster, QueryGraph

class Plugged(Forecaster):
    def query_graph(self, nodes, queries):
        return QueryGraph()

    def decode(self, encoding, batch, graphs):
        raise NotImplementedError

def build(config, time_spec, channels, nodes):
    return Plugged()
"""


def test_a_broken_plug_in_is_named_and_disturbs_no_other_model(tmp_path, monkeypatch) -> None:
    install(tmp_path, "broken = plug_in:build", "import no_such_module_at_all\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        discover_plug_ins()
    build_model(config_of("persistence"), TIMES, 1, POINTS)
    with pytest.raises(UsageError, match=r"'broken' \(plug_in:build\) of the package 'my-plug-in'"):
        build_model(config_of("broken"), TIMES, 1, POINTS)
    dataset = small_task(small_field()).dataset
    found = compare(dataset, load_config("tiny"), ["broken", "persistence"], Budget(epochs=1))
    assert list(found.skipped) == ["broken"] and [c.model for c in found.costs] == ["persistence"]


def test_a_plug_in_cannot_take_the_name_of_another_model(tmp_path, monkeypatch) -> None:
    install(tmp_path, "stonet = plug_in:build", PLUG_IN)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = MODELS["stonet"]
    with pytest.warns(UserWarning, match="'stonet' .* of the package 'my-plug-in' was left out"):
        discover_plug_ins()
    assert MODELS["stonet"] is before
