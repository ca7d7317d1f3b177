"""Pretraining depends on its seed, never increases the validation error, and learns nonlinearity.

Its share of a budget is tested in test_budget.py.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.contracts import fitted_run, small_field, small_points, small_task

from stonet.data.durations import SECOND
from stonet.data.field import Field
from stonet.models.residual_mlp import PointSamples, ResidualMLP
from stonet.models.stonet import STONetwork
from stonet.training import pretraining
from stonet.training.pretraining import PointPretrainer, _error, _judge_far
from stonet.training.task import Task


@pytest.fixture(autouse=True)
def _many_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow many passes over the few samples of small data."""
    monkeypatch.setattr(pretraining, "PASSES", 1000)


def fitted_model(task: Task) -> STONetwork:
    model = fitted_run(task).model
    assert isinstance(model, STONetwork)
    return model


def pretrainer_of(
    task: Task, seed: int = 0, model: STONetwork | None = None, steps: int = 100
) -> PointPretrainer:
    return build_pretrainer(model or fitted_model(task), task, seed, True, steps)


def build_pretrainer(
    model: STONetwork, task: Task, seed: int, hidden_sensors: bool, steps: int
) -> PointPretrainer:
    assert model.residuals is not None and model.base is not None
    left = float(model.base.rmse[0, 1:].mean())
    windows = task.windows("train")
    return PointPretrainer(
        model.residuals, model.point_samples, windows, task.nodes, seed, hidden_sensors, steps, left
    )


def content(rows: PointSamples) -> list:
    parts = vars(rows) | vars(rows.features)
    return [value.tolist() for name, value in parts.items() if name != "features"]


def knowledge(model: STONetwork) -> dict[str, list]:
    assert model.residuals is not None
    return {name: value.tolist() for name, value in model.residuals.named_parameters()}


@pytest.fixture(scope="module")
def task() -> Task:
    return small_task(small_field("sphere"))


@pytest.fixture(scope="module")
def chaos() -> Task:
    """u -> 4 u (1 - u): deterministic, but uncorrelated with its past."""
    points, frames = small_points("plane", 16), 300
    values = np.empty((frames, 16, 1))
    values[0] = np.random.default_rng(0).uniform(0.1, 0.9, (16, 1))
    for t in range(1, frames):
        values[t] = 4 * values[t - 1] * (1 - values[t - 1])
    times = SECOND * np.arange(frames)
    field = Field(values.astype(np.float32), times, points, ("u",), calendar=False)
    return small_task(field, "data.past=2", "data.horizon=1", "network.residual_width=32")


def test_batches_depend_on_seed_and_step(task: Task) -> None:
    one, two, other = (pretrainer_of(task, seed) for seed in (0, 0, 1))
    lessons = [one.batch(step) for step in (3, 4)]
    torch.rand(5)
    assert content(two.batch(4)) == content(lessons[1])
    assert content(two.batch(3)) == content(lessons[0]) != content(lessons[1])
    assert content(other.batch(3)) != content(lessons[0])


def test_pretraining_depends_on_its_seed_and_not_on_the_global_generator(chaos: Task) -> None:
    validation, learned = chaos.windows("validation"), []
    for seed in (0, 0, 1):
        model = fitted_model(chaos)
        torch.manual_seed(len(learned))
        before = torch.get_rng_state()
        pretrainer_of(chaos, seed, model).fit(validation)
        assert torch.equal(torch.get_rng_state(), before)
        learned.append(knowledge(model))
    assert learned[0] == learned[1] != learned[2]


def test_samples_are_of_many_windows_and_points(task: Task) -> None:
    """All of them have a history and a target."""
    rows = pretrainer_of(task).rows
    assert len(torch.unique(rows.target[:, 0, 0])) > 0.3 * len(rows)
    assert rows.features.has_past.all() and rows.mask.all()


def test_dropout_applies_to_training_samples_only(task: Task) -> None:
    pretrainer = pretrainer_of(task)
    lesson, drop = pretrainer.batch(0), pretrainer.dropped
    dropped = lesson.features.white == 0
    share = dropped[lesson.features.has_past].float().mean()  # others have fewer regressors
    assert float(share) == pytest.approx(drop, abs=0.01)
    spare = len(pretrainer.rows) - pretraining.LESSON * max(
        1, len(pretrainer.rows) // pretraining.LESSON - 1
    )
    first = int(np.random.default_rng((0, 0, 0)).integers(spare + 1))
    whole = pretrainer.rows.part(slice(first, first + pretraining.LESSON))
    kept = lesson.features.white[~dropped] * (1 - drop)
    torch.testing.assert_close(kept, whole.features.white[~dropped])
    for name in ("base", "scale", "target", "mask"):
        assert torch.equal(getattr(lesson, name), getattr(whole, name))
    assert torch.equal(lesson.features.time, whole.features.time)
    tests = pretrainer._rows(task.windows("validation"), 500)
    assert (tests.features.white[tests.features.has_past] != 0).all()


def test_a_pass_uses_each_sample_at_most_once_and_passes_start_elsewhere(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the number of samples is a multiple of the batch size."""
    pretrainer = pretrainer_of(task)
    size = next(n for n in range(100, 400) if len(pretrainer.rows) % n == 0)
    monkeypatch.setattr(pretraining, "LESSON", size)
    count = len(pretrainer.rows) // size - 1
    starts = []
    for number in range(3):
        lessons = [pretrainer.batch(number * count + step).target for step in range(count)]
        one, every = torch.cat(lessons), pretrainer.rows.target
        starts.append(next(s for s in range(size + 1) if torch.equal(every[s : s + len(one)], one)))
    assert count > 1 and len(set(starts)) > 1


def test_the_number_of_passes_over_few_samples_is_limited(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many steps are configured."""
    monkeypatch.setattr(pretraining, "PASSES", 2)
    pretrainer, taught = pretrainer_of(task, steps=500), []
    monkeypatch.setattr(pretrainer, "batch", lambda step, _: taught.append(step) or pretrainer.rows)
    pretrainer.fit(task.windows("validation"))
    assert len(taught) == -(-2 * len(pretrainer.rows) // pretraining.LESSON) < 500


@pytest.mark.parametrize("lr", [2e-3, 1e4])
def test_pretraining_never_increases_the_validation_error(
    task: Task, lr: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretraining, "LR", lr)
    model, validation = fitted_model(task), task.windows("validation")
    pretrainer = pretrainer_of(task, model=model, steps=40)
    tests, initial, (residual,) = (
        pretrainer._rows(validation, 500),
        knowledge(model),
        pretrainer.members,
    )
    monkeypatch.setattr(pretrainer, "_rows", lambda *asked, **how: tests)
    before = _error(tests, residual)
    pretrainer.fit(validation)
    assert _error(tests, residual) <= before
    if lr > 1:  # steps that only harm are as if never taken
        assert knowledge(model) == initial


@pytest.mark.parametrize(("last", "kept"), [(0.915, 3), (0.93, 2)])
def test_the_final_weights_are_kept_unless_earlier_ones_were_clearly_better(
    task: Task, last: float, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, states = fitted_model(task), []
    pretrainer, errors = pretrainer_of(task, model=model, steps=3), iter([1.0, 0.95, 0.9, last])

    def scripted(rows: PointSamples, residual: ResidualMLP) -> float:
        states.append(knowledge(model))
        return next(errors)

    monkeypatch.setattr(pretraining, "_error", scripted)
    monkeypatch.setattr(pretraining, "_judge_far", lambda residual, tests: None)
    pretrainer.fit(task.windows("validation"))
    assert len(states) == 4 and knowledge(model) == states[kept]


@pytest.mark.parametrize("clearly", [0.0, 1.0])
def test_only_a_clear_gain_is_kept(
    chaos: Task, clearly: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a factor of 0 no gain suffices; with 1 any gain does."""
    monkeypatch.setattr(pretraining, "CLEARLY", clearly)
    model = fitted_model(chaos)
    initial = knowledge(model)
    pretrainer_of(chaos, model=model, steps=60).fit(chaos.windows("validation"))
    assert (knowledge(model) == initial) is (clearly == 0)


def test_without_steps_the_weights_do_not_change(task: Task) -> None:
    model = fitted_model(task)
    initial = knowledge(model)
    pretrainer_of(task, model=model, steps=0).fit(task.windows("validation"))
    assert knowledge(model) == initial


def test_a_nonlinear_map_is_learned(chaos: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretraining, "PASSES", 100)  # the few rows would end it after ten steps
    monkeypatch.setattr(pretraining, "DROPPED", 0.1)
    model = fitted_model(chaos)
    pretrainer = build_pretrainer(model, chaos, 0, False, 300)
    tests, (residual,) = pretrainer._rows(chaos.windows("test"), 2000), pretrainer.members
    before = _error(tests, residual)
    assert before > 0.8  # of a standard deviation: the base knows nothing
    pretrainer.fit(chaos.windows("validation"))
    assert _error(tests, residual) < 0.4 * before


def test_small_data_are_sampled_completely_and_with_gaps(
    chaos: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretrainer, shown = pretrainer_of(chaos), []

    def sample(windows, chosen, nodes, points, augmentation):
        shown.append((chosen, points, augmentation.gaps))
        return pretrainer.rows.part(torch.arange(augmentation.without_history.numel()))

    monkeypatch.setattr(pretrainer, "sample", sample)
    windows = chaos.windows("train")
    rows = pretrainer._rows(windows, 10**6, learned=True)
    assert len(rows) >= len(windows) * len(chaos.nodes)
    assert set(np.concatenate([chosen for chosen, _, _ in shown])) == set(range(len(windows)))
    assert set(np.concatenate([points for _, points, _ in shown])) == set(range(len(chaos.nodes)))
    assert 0 < sum(gaps > 0 for _, _, gaps in shown) < len(shown) / 2


def test_without_hidden_sensors_there_is_no_correction_without_history(task: Task) -> None:
    pretrainer = build_pretrainer(fitted_model(task), task, 0, False, 5)
    pretrainer.fit(task.windows("validation"))
    assert [float(member.far_share) for member in pretrainer.members] == [0]


def test_few_steps_need_few_samples(chaos: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a short pretraining does not start with a long sampling."""
    monkeypatch.setattr(pretraining, "FEWEST_ROWS", 100)
    monkeypatch.setattr(pretraining, "WINDOWS", 32)
    monkeypatch.setattr(pretraining, "AT_ONCE", 64)
    monkeypatch.setattr(pretraining, "LESSON", 50)
    monkeypatch.setattr(pretraining, "PASSES", 5)
    rows = [len(pretrainer_of(chaos, steps=steps).rows) for steps in (0, 20, 40)]
    assert rows[0] < rows[1] < rows[2] < len(chaos.windows("train")) * len(chaos.nodes)
    assert rows[2] == pytest.approx(40 * 50 / 5, abs=64)


@pytest.mark.parametrize("helps", [True, False])
def test_corrections_without_history_are_kept_only_if_they_help(chaos: Task, helps: bool) -> None:
    """At points with history they always apply."""
    pretrainer = pretrainer_of(chaos)
    (residual,) = pretrainer.members
    torch.nn.init.constant_(residual.out.bias, 0.3)
    rows = pretrainer._rows(chaos.windows("validation"), 500, silent=True)
    advice = 0.3 * rows.scale - 0.3 * rows.scale * rows.base
    judged = replace(rows, target=rows.base + advice * (1 if helps else -1))
    _judge_far(residual, judged)
    assert float(residual.far_share) == helps
    assert (residual(rows.features)[:, 1:] != 0).any() == helps
    own = replace(rows.features, has_past=torch.ones_like(rows.features.has_past))
    assert (residual(own)[:, 1:] != 0).all()


def left_by(task: Task, left: float) -> PointPretrainer:
    """A pretrainer with this base error."""
    model = fitted_model(task)
    assert model.residuals is not None
    windows = task.windows("train")
    return PointPretrainer(
        model.residuals, model.point_samples, windows, task.nodes, 0, True, 100, left
    )


def test_a_small_base_error_allows_more_passes_and_less_dropout(
    task: Task,
) -> None:
    """Since there is less noise to overfit."""
    pretrainers = [left_by(task, left) for left in (3.0, 0.25, 0.125, 0.04, 0.02, 0.005, 0.0)]
    shares = [pretrainer.dropped / pretraining.DROPPED for pretrainer in pretrainers]
    assert shares == pytest.approx([1, 1, 0.5, 0.16, 0.08, 0.02, 0])
    more = [pretrainer.max_steps / pretrainers[0].max_steps for pretrainer in pretrainers]
    assert more == pytest.approx([1, 1, 1, 1, 2, 4, 4], rel=1e-3)
    shown = pretrainers[-1].batch(0).features
    assert (shown.white[shown.has_past] != 0).all()


def test_dropout_is_proportional_to_the_base_error(task: Task) -> None:
    model = fitted_model(task)
    assert model.base is not None
    left = float(model.base.rmse[0, 1:].mean())
    assert 0 < left < pretraining.NOISY  # so that it makes a difference
    share = pretrainer_of(task, model=model).dropped / pretraining.DROPPED
    assert share == pytest.approx(left / pretraining.NOISY)


def strangers(model: STONetwork, rows: PointSamples) -> torch.Tensor:
    """Which samples have site statistics interpolated from neighbours; others have their own."""
    assert model.climatology is not None
    place = model._position(model.nodes)
    point = (rows.features.place[:, None] - place).abs().sum(-1).argmin(1)
    portraits = model.climatology.known, model.climatology.expected(model.nodes)
    own, guess = ((rows.features.site - one[point]).abs().amax(-1) < 1e-5 for one in portraits)
    assert (own ^ guess).all()
    return guess


def test_some_training_samples_are_shown_as_unseen_sites(task: Task) -> None:
    """With statistics interpolated from neighbours; validation samples only if without history."""
    model, validation = fitted_model(task), task.windows("validation")
    pretrainer = pretrainer_of(task, model=model)
    as_unseen = strangers(model, pretrainer.rows).float().mean()
    assert float(as_unseen) == pytest.approx(pretraining.STRANGE, abs=0.04)
    assert not strangers(model, pretrainer._rows(validation, 500)).any()
    silent = pretrainer._rows(validation, 500, silent=True)
    assert strangers(model, silent).all() and not silent.features.has_past.any()


@pytest.fixture(scope="module")
def taught(chaos: Task) -> tuple[STONetwork, STONetwork]:
    """Models with one and with two pretrained members."""
    models = []
    for count in (1, 2):
        network = chaos.config.network.model_copy(update={"residual_members": count})
        task = Task.of(chaos.dataset, chaos.config.model_copy(update={"network": network}))
        model = fitted_model(task)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pretraining, "CLEARLY", 2.0)  # whatever is learned is kept
            pretrainer_of(task, model=model, steps=8).fit(task.windows("validation"))
        models.append(model)
    return models[0], models[1]


def test_members_are_pretrained_independently_and_differ(taught) -> None:
    """The weights of the first do not depend on the number of members."""
    first, second = ({n: p.tolist() for n, p in m.state_dict().items()} for m in members(taught[1]))
    (alone,) = members(taught[0])
    assert first == {name: value.tolist() for name, value in alone.state_dict().items()}
    assert all(first[name] != second[name] for name, _ in alone.named_parameters())
    assert not any(p.requires_grad for model in taught for p in model.residuals.parameters())


def test_the_ensemble_error_is_at_most_the_mean_error_of_its_members(taught, chaos: Task) -> None:
    rows = pretrainer_of(chaos, model=taught[1])._rows(chaos.windows("test"), 2000)
    each = [_error(rows, member) for member in members(taught[1])]
    total, count = rows.error(taught[1].residuals)
    assert float(total / count) <= np.mean(each) * (1 + 1e-6) and each[0] != each[1]


def members(model: STONetwork) -> list[ResidualMLP]:
    assert model.residuals is not None
    return list(model.residuals.members)


def test_members_have_other_sample_orders_and_dropout(task: Task) -> None:
    pretrainer = pretrainer_of(task)
    one, two = pretrainer.batch(3), pretrainer.batch(3, 1)
    assert content(one) == content(pretrainer.batch(3, 0)) != content(two)
    assert not torch.equal(one.features.white == 0, two.features.white == 0)
    assert content(two) == content(pretrainer_of(task).batch(3, 1))


def test_few_samples_of_many_points_are_spread_over_all_points(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Validation covers the whole region."""
    task = small_task(small_field("plane"))
    pretrainer, asked = pretrainer_of(task), []
    monkeypatch.setattr(pretrainer, "order", np.arange(600))

    def sample(windows, chosen, nodes, points, augmentation):
        asked.append(points)
        return one_row

    one_row = pretrainer.rows.part(slice(0, 1))
    monkeypatch.setattr(pretrainer, "sample", sample)
    monkeypatch.setattr(PointSamples, "allocate", lambda self, size: self)
    monkeypatch.setattr(PointSamples, "put", lambda self, where, part: None)
    pretrainer._rows(task.windows("validation"), 1_000)
    met = np.sort(np.concatenate(asked))
    assert len(np.unique(met)) == len(met) < 400  # some of the points, none of them twice
    gaps = np.diff(np.append(met, met[0] + 600))
    assert gaps.max() <= 2 * 600 / len(asked)
