"""LightGBM: stored trees equal the library's own, features and budgets follow their definitions."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache

import lightgbm
import numpy as np
import pytest
import torch
from helpers.contracts import HOUR, Case, small_field, small_points, with_gaps

from stonet.config import load_config
from stonet.data.time_spec import TimeSpec
from stonet.errors import ModelFileError, UsageError
from stonet.models.baselines import boosting
from stonet.models.baselines.boosting import Candidate, Limit, Rows, race
from stonet.models.baselines.forest import MAX_EDGES, Forest, TreeArrays, no_trees, tree_arrays
from stonet.models.baselines.lightgbm import (
    DIRECTIONS,
    LightGBM,
    day_lags,
    mean_of_known,
    neighbours_by_direction,
    used_lags,
)
from stonet.models.registry import build_model
from stonet.training.run_folder import RunFolder
from stonet.training.trained_model import TrainedModel

SHARED, OWN, LEADS, ROWS = 4, 2, 3, 500
PARAMETERS = {"verbosity": -1, "objective": "regression_l1", "min_data_in_leaf": 5, "seed": 1}


def table(rows: int, gaps: bool, seed: int = 0) -> np.ndarray:
    """Features with repeated values, zeros and, if so wanted, NaN in all but one."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, SHARED + OWN)).astype(np.float32)
    x[:, 1] = x[:, 1].round()
    x[:, 2] *= generator.random(rows) < 0.5
    if gaps:
        x[:, 1:][generator.random((rows, SHARED + OWN - 1)) < 0.2] = np.nan
    return x


@cache
def grown(gaps: bool, leaves: int = 31, rounds: int = 30) -> tuple[lightgbm.Booster, TreeArrays]:
    x = table(3000, gaps)
    filled = np.nan_to_num(x, nan=-2.0)
    y = filled[:, 0] * (filled[:, 1] > 0) + np.sin(3 * filled[:, 4]) + 0.3 * filled[:, 2]
    data = lightgbm.Dataset(x, y)
    booster = lightgbm.train({**PARAMETERS, "num_leaves": leaves}, data, rounds)
    trees = [tree["tree_structure"] for tree in booster.dump_model()["tree_info"]]
    return booster, tree_arrays([(0, tree) for tree in trees])


def forest_of(arrays: TreeArrays) -> Forest:
    forest = Forest(2, SHARED + OWN)
    forest.set(arrays)
    return forest


@pytest.mark.parametrize("trained_with_gaps", [True, False])
@pytest.mark.parametrize("leaves", [2, 31, 61])
def test_stored_trees_equal_the_library(trained_with_gaps: bool, leaves: int) -> None:
    """Also for NaN where training had none, which the library takes for 0."""
    booster, arrays = grown(trained_with_gaps, leaves)
    forest = forest_of(arrays)
    shared = table(ROWS, gaps=True, seed=1)[:, :SHARED]
    own = np.stack([table(ROWS, gaps=True, seed=2 + k)[:, SHARED:] for k in range(LEADS)])
    ours = forest.predict(0, shared, own, chunk=64)
    for k in range(LEADS):
        theirs = booster.predict(np.concatenate([shared, own[k]], axis=1))
        np.testing.assert_allclose(ours[k], theirs, rtol=0, atol=1e-6)
    assert not forest.predict(1, shared, own).any(), "the other output has no trees"


def test_a_value_at_a_threshold_goes_left_as_in_the_library() -> None:
    """But for the thresholds around 0: the library takes values so small for 0."""
    booster, arrays = grown(False)
    x = table(len(arrays.threshold), gaps=False).astype(np.float64)
    x[np.arange(len(x)), arrays.feature.numpy()] = arrays.threshold.numpy()
    x = x[arrays.threshold.abs().numpy() > 1e-30]
    ours = forest_of(arrays).predict(0, x[:, :SHARED], x[None, :, SHARED:])[0]
    np.testing.assert_allclose(ours, booster.predict(x), rtol=0, atol=1e-9)


def test_a_tree_without_splits_is_its_value() -> None:
    arrays = tree_arrays([(0, {"leaf_value": 0.5}), (1, {"leaf_value": 2.0})])
    x = table(5, gaps=False)
    forest = forest_of(arrays)
    for owner, value in enumerate((0.5, 2.0)):
        assert (forest.predict(owner, x[:, :SHARED], x[None, :, SHARED:]) == value).all()


def test_a_forest_is_saved_and_loaded() -> None:
    forest, other = forest_of(grown(True)[1]), Forest(2, SHARED + OWN)
    other.load_state_dict(forest.state_dict())
    x = table(ROWS, gaps=True, seed=5)
    one, two = (f.predict(0, x[:, :SHARED], x[None, :, SHARED:]) for f in (forest, other))
    assert np.array_equal(one, two)
    other.load_state_dict(forest_of(no_trees()).state_dict())
    assert not other.predict(0, x[:, :SHARED], x[None, :, SHARED:]).any()


@pytest.mark.parametrize(
    ("name", "index", "value"),
    [
        ("feature", 3, SHARED + OWN),
        ("feature", 3, -1),
        ("owner", 0, 2),
        ("left", 5, 0),  # a cycle
        ("left", 0, 400),
        ("right", 2, -99),
        ("threshold", 1, float("nan")),
        ("value", 1, float("inf")),
        ("splits", 1, 10**9),
        ("splits", 0, 1),
        ("leaves", 2, 0),
    ],
)
def test_damaged_trees_are_refused(name: str, index: int, value: float) -> None:
    state = {key: part.clone() for key, part in forest_of(grown(True)[1]).state_dict().items()}
    state[name][index] = value
    with pytest.raises(ValueError, match="trees are damaged"):
        Forest(2, SHARED + OWN).load_state_dict(state)


@pytest.mark.parametrize(
    "changes",
    [
        {"threshold": torch.zeros(3, dtype=torch.float64)},
        {"threshold": torch.zeros(900)},
        {"left": torch.zeros(900, 1, dtype=torch.int64)},
        {"splits": torch.zeros(0, dtype=torch.int64)},
        {"left": grown(True)[1].right},  # every child has two parents
    ],
    ids=["length", "precision", "dimensions", "empty", "parents"],
)
def test_arrays_of_another_form_are_refused(changes: dict[str, torch.Tensor]) -> None:
    state = {**forest_of(grown(True)[1]).state_dict(), **changes}
    with pytest.raises(ValueError, match="trees are damaged"):
        Forest(2, SHARED + OWN).load_state_dict(state)


def test_more_thresholds_than_the_library_makes_are_refused() -> None:
    """Their tables would need far more memory than the file."""
    count = MAX_EDGES + 1
    tree = {"split_feature": 0, "decision_type": "<=", "missing_type": "NaN", "default_left": True}
    tree |= {"left_child": {"leaf_value": 1.0}, "right_child": {"leaf_value": 2.0}}
    arrays = tree_arrays([(0, {**tree, "threshold": float(k)}) for k in range(count)])
    with pytest.raises(ValueError, match="thresholds"):
        arrays.check(1, 1)
    tree_arrays([(0, {**tree, "threshold": float(k)}) for k in range(count - 1)]).check(1, 1)


def test_categorical_splits_are_refused() -> None:
    leaf = {"leaf_value": 0.0}
    tree = {"decision_type": "==", "missing_type": "None", "left_child": leaf, "right_child": leaf}
    with pytest.raises(ValueError, match="comparison"):
        tree_arrays([(0, tree)])


@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_neighbours_are_the_nearest_in_each_direction(kind: str) -> None:
    nodes = small_points(kind, 20)
    result, x = neighbours_by_direction(nodes), nodes.embedded
    offset = nodes.geometry.offset(np.repeat(x[:, None], 20, 1), np.repeat(x[None], 20, 0))
    for i in range(20):
        best: dict[int, tuple[float, int]] = {}
        for j in range(20):
            if i != j:
                east, north = offset[i, j]
                sector = round(DIRECTIONS * np.arctan2(north, east) / (2 * np.pi)) % DIRECTIONS
                best[sector] = min(best.get(sector, (np.inf, 0)), (np.hypot(east, north), j))
        expected = [best.get(sector, (0, 20))[1] for sector in range(DIRECTIONS)]
        assert result[i].tolist() == expected


def test_lags_and_daily_values() -> None:
    assert used_lags(5).tolist() == [0, 1, 2, 3, 4]
    assert used_lags(24).tolist() == list(range(24))
    assert len(used_lags(100)) == 24 and used_lags(100)[-1] == 99
    hourly = TimeSpec(HOUR, 24, 3, calendar=True)
    assert day_lags(hourly).tolist() == [23, 22, 21]
    assert day_lags(replace(hourly, past=22)).tolist() == [22, 22, 21]  # 22: there is none
    assert day_lags(replace(hourly, past=12)) is None
    assert day_lags(replace(hourly, calendar=False)) is None


def test_means_leave_missing_values_out() -> None:
    x = np.array([[1.0, np.nan, 3.0], [np.nan] * 3])
    np.testing.assert_array_equal(mean_of_known(x, 1), [2.0, np.nan])


@cache
def fitted(*settings: str) -> Case:
    return Case.of(small_field("sphere", channels=2, frames=160), "model=lightgbm", *settings)


def features(case: Case, missing: float) -> tuple[np.ndarray, np.ndarray]:
    """Shared and own features of the second channel, (window, node, feature) and with leads."""
    model, batch = case.fitted, case.windows.inputs(np.arange(3))
    assert isinstance(model, LightGBM)
    graph = model.node_graph(case.nodes)
    batch = with_gaps(batch, missing)
    inputs = model._with_extras(model._inputs(batch, graph.mean), batch, graph.sites)
    shared = model._shared(inputs, graph.operators, 1).reshape(3, len(case.nodes), -1)
    return shared, model._own(inputs, graph.operators, 1)


def test_features_are_as_many_as_announced_and_the_first_ones_are_the_past() -> None:
    case = fitted()
    shared, own = features(case, 0.0)
    assert (shared.shape[-1], own.shape[-1]) == case.fitted.widths
    batch = case.windows.inputs(np.arange(3))
    past = batch.frames[batch.past][..., 1].flip(1).numpy()  # newest first
    np.testing.assert_array_equal(shared[..., 0], past[:, 0])
    for k in range(len(case.fitted.lags)):
        np.testing.assert_allclose(shared[..., 1 + k], past[:, k] - past[:, 0], atol=1e-6)
    assert np.isfinite(own).all()


def test_missing_values_stay_missing_but_at_nodes_without_a_past() -> None:
    shared, _ = features(fitted(), 0.3)
    lags = shared[..., 1 : 1 + len(fitted().fitted.lags)]
    assert 0.1 < np.isnan(lags[:, 2:]).mean() < 0.5
    assert not np.isnan(lags[:, :2]).any(), "the mean of the neighbours serves as their past"
    assert np.isfinite(shared[..., 0]).all()


def test_equal_seeds_give_equal_trees_and_other_ones_do_not() -> None:
    one, two, other = (
        Case.of(small_field(), "model=lightgbm", f"train.seed={seed}").fitted.state_dict()
        for seed in (0, 0, 1)
    )
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert one["forest.value"].shape != other["forest.value"].shape or not torch.equal(
        one["forest.value"], other["forest.value"]
    )


def test_trees_beat_the_newest_value() -> None:
    case = fitted("train.epochs=2")
    chosen = np.arange(0, len(case.windows), 7)
    batch, (target, _) = case.windows.inputs(chosen), case.windows.targets(chosen)
    last = batch.frames[batch.past[:, -1]][:, None]
    graphs = case.fitted.graphs(case.nodes)
    error = (case.fitted(batch, graphs).forecast - target).abs().mean()
    assert error < 0.5 * (last - target).abs().mean()


def learnable(rows: int, seed: int) -> Rows:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, 3)).astype(np.float32)
    y = np.sign(x[:, 0]) + 2.0 * (x[:, 1] > 0.3)
    return Rows(x, y.astype(np.float64), np.ones(rows), np.arange(rows) % 4)


def test_the_best_candidate_grows_on() -> None:
    poor, good = Candidate(4, 1, 1e-4), Candidate(4, 2, 0.3)
    best = race(learnable(2000, 0), learnable(500, 1), (poor, good), Limit(40.0, False), 0.5, 0, 1)
    assert best.candidate == good and best.spent == 30  # 10 of the race, and the other half
    assert best.error < 0.3 and [len(trees) > 5 for trees in best.trees()] == [True, True]
    assert good.group(4).tolist() == [0, 0, 1, 1]


def test_minutes_are_those_of_the_clock(monkeypatch) -> None:
    """Each reading of this clock takes a second, and each round has two readings."""
    readings = iter(range(10**6))
    monkeypatch.setattr(boosting.time, "process_time", lambda: float(next(readings)))
    arguments = learnable(500, 0), learnable(100, 1), (Candidate(4, 1, 0.1),)
    best = race(*arguments, Limit(25.0, True), 0.25, 0, 1)
    assert 25 <= best.spent <= 26 and next(readings) <= 53


def test_without_the_library_training_is_refused_and_forecasts_work(monkeypatch, tmp_path) -> None:
    case = fitted()
    RunFolder(tmp_path / "run").publish(case.trained.files({}))
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    batch = case.windows.inputs(np.arange(3))
    model = TrainedModel.load(tmp_path / "run").model
    one, two = (m(batch, m.graphs(case.nodes)).forecast for m in (model, case.fitted))
    assert torch.equal(one, two)
    with pytest.raises(UsageError, match=r"stonet\[peers\]"):
        Case.of(small_field(), "model=lightgbm")


def test_a_run_with_damaged_trees_is_refused(tmp_path) -> None:
    trained = Case.of(small_field(), "model=lightgbm").trained
    trained.model.forest.left[0] = 10**6
    RunFolder(tmp_path / "run").publish(trained.files({}))
    with pytest.raises(ModelFileError, match="do not fit together"):
        TrainedModel.load(tmp_path / "run")


@pytest.mark.parametrize("leaves", [1, 63, 1000])
def test_a_number_of_leaves_that_cannot_be_stored_is_refused(leaves: int) -> None:
    config = load_config(settings=("model=lightgbm", f"baseline.hidden={leaves}"))
    with pytest.raises(UsageError, match=r"baseline\.hidden"):
        build_model(config, TimeSpec(HOUR, 12, 3, True), 1, small_points("plane", 9))


def test_a_refit_without_a_validation_part_is_refused() -> None:
    config = load_config(settings=("model=lightgbm", "train.final=true"))
    with pytest.raises(UsageError, match=r"train\.final"):
        build_model(config, TimeSpec(HOUR, 12, 3, True), 1, small_points("plane", 9))
