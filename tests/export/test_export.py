"""The exported network equals the trained one: in plain operations, and in onnxruntime."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.contracts import fitted_model, perturb, small_field, small_points, small_task
from helpers.paths import ROOT

from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import DataError, UsageError
from stonet.export.inputs import graph_inputs, neighbour_table, past_inputs
from stonet.export.network import OnnxNetwork
from stonet.export.write import all_inputs, export, exportable, free_axes
from stonet.graph.neighbours import within_radius
from stonet.inference.forecast import forecast
from stonet.models.combination import Combination
from stonet.training.trained_model import TrainedModel

EXAMPLE = ROOT / "examples" / "onnx" / "forecast.py"
SETTINGS = {
    "sphere": ("sphere", 2, ()),
    "plane": ("plane", 1, ("data.horizon=5",)),
    "linear": ("sphere", 2, ("network.anchor=linear",)),
    "linear on a plane": ("plane", 1, ("network.anchor=linear",)),
    "last": ("plane", 2, ("network.anchor=last", "network.layers=0")),
    "deep": ("sphere", 1, ("network.layers=2", "graph.levels=2")),
    "daily": ("sphere", 1, ("data.past=24",)),
}


@cache
def trained(name: str) -> TrainedModel:
    kind, channels, settings = SETTINGS[name]
    result = fitted_model(small_task(small_field(kind, channels, frames=320), *settings))
    perturb(result.model)
    return result


def field_of(name: str, last: int, stations: np.ndarray, gaps: bool = False) -> Field:
    kind, channels, _ = SETTINGS[name]
    field = small_field(kind, channels, frames=320).between(0, last).take(stations)
    if not gaps:
        return field
    values, generator = field.values.copy(), np.random.default_rng(0)
    values[generator.random(values.shape) < 0.2] = np.nan
    values[-1, 3] = np.nan  # no newest value
    return Field(**(vars(field) | {"values": values, "mask": None}))


def sites(name: str, stations: Points) -> Points:
    """Other places, and one of the stations."""
    new = small_points(SETTINGS[name][0], 4, seed=9).coordinates
    return Points(np.concatenate([new, stations.coordinates[2:3]]), stations.kind)


def assert_near(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> None:
    size = np.abs(theirs).max()
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * size)


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "with gaps"])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_network_in_plain_operations_equals_the_trained_one(name: str, gaps: bool) -> None:
    model = trained(name)
    network = exportable(model.model)
    field = field_of(name, 150, np.arange(20), gaps)
    places = sites(name, field.points)
    given = all_inputs(model, network, field, places)
    module = OnnxNetwork(network, model.scaler, tuple(given))
    with torch.no_grad():
        result = module(*map(torch.from_numpy, given.values())).numpy()
    assert_near(result[0], forecast(model, field, places).values, 1e-5)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("onnx")
    field = field_of("sphere", 120, np.arange(16))
    return export(trained("sphere"), folder / "model.onnx", field, field.points.take(np.arange(7)))[
        0
    ]


def in_onnxruntime(path: Path, given: dict[str, np.ndarray]) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    used = {each.name for each in session.get_inputs()}
    (result,) = session.run(None, {name: given[name] for name in used})
    return result


@pytest.mark.parametrize(
    ("stations", "windows", "leads"),
    [(np.arange(16), [119], None), (np.arange(24), [130, 90, 40], (0.25, 1, 3.5)),
     (np.arange(5, 14), [60], (2,))],
    ids=["as exported", "more", "fewer"],
)  # fmt: skip
def test_onnxruntime_equals_pytorch_at_other_sizes(
    exported: Path, stations: np.ndarray, windows: list[int], leads: tuple[float, ...] | None
) -> None:
    model = trained("sphere")
    network, field = exportable(model.model), field_of("sphere", 140, stations)
    places = sites("sphere", field.points)
    given = all_inputs(model, network, field, places)
    given |= past_inputs(model, network, field, np.array(windows))
    if leads is not None:
        given["lead"] = np.array(leads, np.float32)
    result = in_onnxruntime(exported, given)
    assert result.shape == (len(windows), len(given["lead"]), len(places), 2)
    step = model.time_spec.step
    for row, newest in zip(result, windows, strict=True):
        times = field.times[newest] + np.round(given["lead"] * step).astype(np.int64)
        expected = forecast(model, field.between(0, newest + 1), places, times=[
            np.datetime64(int(time), "ns") for time in times
        ])  # fmt: skip
        assert_near(row, expected.values, 1e-4)


def test_the_example_needs_onnxruntime_and_numpy_alone(exported: Path, tmp_path: Path) -> None:
    """With another past than that of the export, one value of which is missing."""
    model, field = trained("sphere"), field_of("sphere", 140, np.arange(16))
    past = field.values[-model.time_spec.past :].copy()
    np.save(tmp_path / "past.npy", past)
    newest = str(np.datetime64(int(field.times[-1]), "ns"))
    code = (
        "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0]); "
        "assert not {'torch', 'stonet', 'pandas'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", code, EXAMPLE, exported, tmp_path / "past.npy", newest]
    subprocess.run([*map(str, command)], cwd=tmp_path, check=True, timeout=120)
    expected = forecast(model, field, field.points.take(np.arange(7))).values
    assert_near(np.load(tmp_path / "forecast.npy"), expected, 1e-4)


def test_the_file_describes_itself(exported: Path) -> None:
    import onnx

    model = onnx.load(exported)
    facts = json.loads({each.key: each.value for each in model.metadata_props}["stonet"])
    assert (facts["channels"], facts["units"]) == (["u0", "u1"], ["K", "K"])
    free = {d.dim_param for each in model.graph.input for d in each.type.tensor_type.shape.dim}
    assert {"window", "node", "query", "future", "near"} <= free
    given = np.load(exported.with_suffix(".npz"), allow_pickle=False)
    assert {each.name for each in model.graph.input} <= set(given.files)


def test_tables_hold_every_neighbour_and_the_features_of_its_edge() -> None:
    points = small_points("plane", 30)
    neighbours = within_radius(points, points, 0.25)
    table = neighbour_table(neighbours, "x")
    target, source = (part.tolist() for part in neighbours.edges())
    rows = [[s for s in row if s < 30] for row in table["x_index"].tolist()]
    assert {(t, s) for t, row in enumerate(rows) for s in row} == set(
        zip(target, source, strict=True)
    )
    offset = points.coordinates[table["x_index"][4][:3]] - points.coordinates[4]
    np.testing.assert_allclose(table["x_edge"][4, :3, :2], offset / 0.25, atol=1e-6)


def test_every_input_has_named_axes() -> None:
    model, field = trained("linear"), field_of("linear", 120, np.arange(16))
    given = all_inputs(model, exportable(model.model), field)
    for name, axes in free_axes(given).items():
        assert max(axes) < given[name].ndim
    sizes = {}
    for name, axes in free_axes(given).items():
        for axis, dimension in axes.items():
            assert sizes.setdefault(dimension, given[name].shape[axis]) == given[name].shape[axis]


def test_a_station_without_any_value_is_named() -> None:
    field = field_of("sphere", 120, np.arange(16))
    values = field.values.copy()
    values[:, 5] = np.nan
    silent = Field(**(vars(field) | {"values": values, "mask": None}))
    model = trained("sphere")
    with pytest.raises(DataError, match=r"have no value.*places"):
        past_inputs(model, exportable(model.model), silent)
    with pytest.raises(DataError, match="3 times"):
        past_inputs(model, exportable(model.model), field.between(0, 3))


def test_other_models_are_refused() -> None:
    task = small_task(small_field(), "model=gcgru", "baseline.hidden=4")
    with pytest.raises(UsageError, match=r"Only the model 'stonet'.*GCGRU"):
        exportable(fitted_model(task).model)
    network = trained("plane").model
    reference = fitted_model(small_task(small_field(), "model=persistence")).model
    alone, half = torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5])
    members = {"network": network, "persistence": reference}
    shares = [share[:, None, None].expand(2, 5, 1) for share in (alone, half)]
    assert exportable(Combination(members, shares[0])) is network
    both = Combination(members, shares[1])
    with pytest.raises(UsageError, match=r"persistence.*--network-only.*train\.fallback=false"):
        exportable(both)
    assert exportable(both, network_only=True) is network


def test_places_need_no_station() -> None:
    network = exportable(trained("sphere").model)
    nodes = small_points("sphere", 24)
    given = graph_inputs(network, nodes, sites("sphere", nodes))
    assert given["own"].tolist() == [24, 24, 24, 24, 2]


def test_without_the_packages_the_extra_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(UsageError, match=r"stonet\[export\]"):
        export(trained("sphere"), tmp_path / "m.onnx", field_of("sphere", 120, np.arange(16)))
