"""The school: decided by its seed, never a harm, and a help where no linear operator is.

How long it may take is in test_comparison.py.
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
from stonet.training import pretraining as school_module
from stonet.training.pretraining import PointPretrainer, _error, _judge_far
from stonet.training.task import Task


@pytest.fixture(autouse=True)
def _many_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small data have few rows; here these may be seen again and again."""
    monkeypatch.setattr(school_module, "PASSES", 1000)


def pupil(task: Task) -> STONetwork:
    model = fitted_run(task).model
    assert isinstance(model, STONetwork)
    return model


def school_of(
    task: Task, seed: int = 0, model: STONetwork | None = None, steps: int = 100
) -> PointPretrainer:
    return school_for(model or pupil(task), task, seed, True, steps)


def school_for(
    model: STONetwork, task: Task, seed: int, outage: bool, steps: int
) -> PointPretrainer:
    assert model.residuals is not None and model.base is not None
    left = float(model.base.rmse[0, 1:].mean())
    windows = task.windows("train")
    return PointPretrainer(
        model.residuals, model.point_samples, windows, task.nodes, seed, outage, steps, left
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
    """u -> 4 u (1 - u): uncorrelated with its past, and yet decided by it."""
    points, frames = small_points("plane", 16), 300
    values = np.empty((frames, 16, 1))
    values[0] = np.random.default_rng(0).uniform(0.1, 0.9, (16, 1))
    for t in range(1, frames):
        values[t] = 4 * values[t - 1] * (1 - values[t - 1])
    times = SECOND * np.arange(frames)
    field = Field(values.astype(np.float32), times, points, ("u",), calendar=False)
    return small_task(field, "data.past=2", "data.horizon=1", "network.residual_width=32")


def test_lessons_are_decided_by_seed_and_step(task: Task) -> None:
    one, two, other = (school_of(task, seed) for seed in (0, 0, 1))
    lessons = [one.batch(step) for step in (3, 4)]
    torch.rand(5)
    assert content(two.batch(4)) == content(lessons[1])
    assert content(two.batch(3)) == content(lessons[0]) != content(lessons[1])
    assert content(other.batch(3)) != content(lessons[0])


def test_the_seed_decides_what_is_learned_and_the_global_generator_nothing(chaos: Task) -> None:
    validation, learned = chaos.windows("validation"), []
    for seed in (0, 0, 1):
        model = pupil(chaos)
        torch.manual_seed(len(learned))
        before = torch.get_rng_state()
        school_of(chaos, seed, model).fit(validation)
        assert torch.equal(torch.get_rng_state(), before)
        learned.append(knowledge(model))
    assert learned[0] == learned[1] != learned[2]


def test_rows_are_of_every_kind(task: Task) -> None:
    """Many windows and points, none of them silent, none of them without a target."""
    rows = school_of(task).rows
    assert len(torch.unique(rows.target[:, 0, 0])) > 0.3 * len(rows)
    assert rows.features.has_past.all() and rows.mask.all()


def test_lessons_drop_some_of_what_is_seen_and_judges_see_all(task: Task) -> None:
    school = school_of(task)
    lesson, drop = school.batch(0), school.dropped
    dropped = lesson.features.white == 0
    share = dropped[lesson.features.has_past].float().mean()  # others have fewer regressors
    assert float(share) == pytest.approx(drop, abs=0.01)
    spare = len(school.rows) - school_module.LESSON * max(
        1, len(school.rows) // school_module.LESSON - 1
    )
    first = int(np.random.default_rng((0, 0, 0)).integers(spare + 1))
    whole = school.rows.part(slice(first, first + school_module.LESSON))
    kept = lesson.features.white[~dropped] * (1 - drop)
    torch.testing.assert_close(kept, whole.features.white[~dropped])
    for name in ("base", "scale", "target", "mask"):
        assert torch.equal(getattr(lesson, name), getattr(whole, name))
    assert torch.equal(lesson.features.time, whole.features.time)
    tests = school._rows(task.windows("validation"), 500)
    assert (tests.features.white[tests.features.has_past] != 0).all()


def test_a_pass_shows_each_row_at_most_once_and_passes_begin_elsewhere(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the rows are a whole number of lessons."""
    school = school_of(task)
    size = next(n for n in range(100, 400) if len(school.rows) % n == 0)
    monkeypatch.setattr(school_module, "LESSON", size)
    count = len(school.rows) // size - 1
    starts = []
    for number in range(3):
        lessons = [school.batch(number * count + step).target for step in range(count)]
        one, every = torch.cat(lessons), school.rows.target
        starts.append(next(s for s in range(size + 1) if torch.equal(every[s : s + len(one)], one)))
    assert count > 1 and len(set(starts)) > 1


def test_few_rows_are_not_learned_by_heart(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many steps are wanted, the rows are passed over a few times only."""
    monkeypatch.setattr(school_module, "PASSES", 2)
    school, taught = school_of(task, steps=500), []
    monkeypatch.setattr(school, "batch", lambda step, _: taught.append(step) or school.rows)
    school.fit(task.windows("validation"))
    assert len(taught) == -(-2 * len(school.rows) // school_module.LESSON) < 500


@pytest.mark.parametrize("lr", [2e-3, 1e4])
def test_it_never_leaves_the_expert_worse_on_its_judges(
    task: Task, lr: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(school_module, "LR", lr)
    model, validation = pupil(task), task.windows("validation")
    school = school_of(task, model=model, steps=40)
    tests, untaught, (residual,) = school._rows(validation, 500), knowledge(model), school.members
    monkeypatch.setattr(school, "_rows", lambda *asked, **how: tests)
    before = _error(tests, residual)
    school.fit(validation)
    assert _error(tests, residual) <= before
    if lr > 1:  # steps that only harm are as if never taken
        assert knowledge(model) == untaught


@pytest.mark.parametrize(("last", "kept"), [(0.915, 3), (0.93, 2)])
def test_the_end_counts_unless_it_was_far_better_before(
    task: Task, last: float, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, states = pupil(task), []
    school, errors = school_of(task, model=model, steps=3), iter([1.0, 0.95, 0.9, last])

    def scripted(rows: PointSamples, residual: ResidualMLP) -> float:
        states.append(knowledge(model))
        return next(errors)

    monkeypatch.setattr(school_module, "_error", scripted)
    monkeypatch.setattr(school_module, "_judge_far", lambda residual, tests: None)
    school.fit(task.windows("validation"))
    assert len(states) == 4 and knowledge(model) == states[kept]


@pytest.mark.parametrize("clearly", [0.0, 1.0])
def test_only_a_clear_gain_is_kept(
    chaos: Task, clearly: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an error that cannot become nothing, 0 of it is never reached; less than all of it is."""
    monkeypatch.setattr(school_module, "CLEARLY", clearly)
    model = pupil(chaos)
    untaught = knowledge(model)
    school_of(chaos, model=model, steps=60).fit(chaos.windows("validation"))
    assert (knowledge(model) == untaught) is (clearly == 0)


def test_without_a_lesson_nothing_is_learned(task: Task) -> None:
    model = pupil(task)
    untaught = knowledge(model)
    school_of(task, model=model, steps=0).fit(task.windows("validation"))
    assert knowledge(model) == untaught


def test_what_no_linear_operator_can_tell_is_learned(
    chaos: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(school_module, "PASSES", 100)  # the few rows would end it after ten steps
    monkeypatch.setattr(school_module, "DROPPED", 0.1)
    model = pupil(chaos)
    school = school_for(model, chaos, 0, False, 300)
    tests, (residual,) = school._rows(chaos.windows("test"), 2000), school.members
    before = _error(tests, residual)
    assert before > 0.8  # of a standard deviation: the base knows nothing
    school.fit(chaos.windows("validation"))
    assert _error(tests, residual) < 0.4 * before


def test_small_data_are_seen_whole_and_with_gaps(
    chaos: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    school, shown = school_of(chaos), []
    monkeypatch.setattr(
        school, "show",
        lambda windows, chosen, nodes, points, augmentation: shown.append((chosen, points, augmentation.gaps))
        or school.rows.part(torch.arange(augmentation.without_history.numel())),
    )  # fmt: skip
    windows = chaos.windows("train")
    rows = school._rows(windows, 10**6, learned=True)
    assert len(rows) >= len(windows) * len(chaos.nodes)
    assert set(np.concatenate([chosen for chosen, _, _ in shown])) == set(range(len(windows)))
    assert set(np.concatenate([points for _, points, _ in shown])) == set(range(len(chaos.nodes)))
    assert 0 < sum(gaps > 0 for _, _, gaps in shown) < len(shown) / 2


def test_without_outages_nobody_is_asked_for_advice_without_a_past(task: Task) -> None:
    school = school_for(pupil(task), task, 0, False, 5)
    school.fit(task.windows("validation"))
    assert [float(member.far_share) for member in school.members] == [0]


def test_few_steps_need_few_rows(chaos: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a short schooling does not begin with long reading."""
    monkeypatch.setattr(school_module, "FEWEST_ROWS", 100)
    monkeypatch.setattr(school_module, "WINDOWS", 32)
    monkeypatch.setattr(school_module, "AT_ONCE", 64)
    monkeypatch.setattr(school_module, "LESSON", 50)
    monkeypatch.setattr(school_module, "PASSES", 5)
    rows = [len(school_of(chaos, steps=steps).rows) for steps in (0, 20, 40)]
    assert rows[0] < rows[1] < rows[2] < len(chaos.windows("train")) * len(chaos.nodes)
    assert rows[2] == pytest.approx(40 * 50 / 5, abs=64)


@pytest.mark.parametrize("helps", [True, False])
def test_advice_that_does_not_help_without_a_past_is_not_given_there(
    chaos: Task, helps: bool
) -> None:
    """At points with a past it is given either way."""
    school = school_of(chaos)
    (residual,) = school.members
    torch.nn.init.constant_(residual.out.bias, 0.3)
    rows = school._rows(chaos.windows("validation"), 500, silent=True)
    advice = 0.3 * rows.scale - 0.3 * rows.scale * rows.base
    judged = replace(rows, target=rows.base + advice * (1 if helps else -1))
    _judge_far(residual, judged)
    assert float(residual.far_share) == helps
    assert (residual(rows.features)[:, 1:] != 0).any() == helps
    own = replace(rows.features, has_past=torch.ones_like(rows.features.has_past))
    assert (residual(own)[:, 1:] != 0).all()


def left_by(task: Task, left: float) -> PointPretrainer:
    """The school of a model whose base leaves so much over."""
    model = pupil(task)
    assert model.residuals is not None
    windows = task.windows("train")
    return PointPretrainer(
        model.residuals, model.point_samples, windows, task.nodes, 0, True, 100, left
    )


def test_where_the_base_leaves_little_over_nothing_is_dropped_and_more_passes_are_allowed(
    task: Task,
) -> None:
    """There is less noise that could be relied on, or learned by heart."""
    schools = [left_by(task, left) for left in (3.0, 0.25, 0.125, 0.04, 0.02, 0.005, 0.0)]
    shares = [school.dropped / school_module.DROPPED for school in schools]
    assert shares == pytest.approx([1, 1, 0.5, 0.16, 0.08, 0.02, 0])
    more = [school.limit / schools[0].limit for school in schools]
    assert more == pytest.approx([1, 1, 1, 1, 2, 4, 4], rel=1e-3)
    shown = schools[-1].batch(0).features
    assert (shown.white[shown.has_past] != 0).all()


def test_what_the_base_leaves_over_is_its_usual_error_where_all_is_there(task: Task) -> None:
    model = pupil(task)
    assert model.base is not None
    left = float(model.base.rmse[0, 1:].mean())
    assert 0 < left < school_module.NOISY  # so that it makes a difference
    share = school_of(task, model=model).dropped / school_module.DROPPED
    assert share == pytest.approx(left / school_module.NOISY)


def strangers(model: STONetwork, rows: PointSamples) -> torch.Tensor:
    """Which rows have the site that their point's neighbours suggest; others have its own."""
    assert model.climatology is not None
    place = model._position(model.nodes)
    point = (rows.features.place[:, None] - place).abs().sum(-1).argmin(1)
    portraits = model.climatology.known, model.climatology.expected(model.nodes)
    own, guess = ((rows.features.site - one[point]).abs().amax(-1) < 1e-5 for one in portraits)
    assert (own ^ guess).all()
    return guess


def test_some_of_whom_they_learn_from_are_strangers(task: Task) -> None:
    """And look as their neighbours suggest. Judges know whom they see, but for the silent."""
    model, validation = pupil(task), task.windows("validation")
    school = school_of(task, model=model)
    as_unseen = strangers(model, school.rows).float().mean()
    assert float(as_unseen) == pytest.approx(school_module.STRANGE, abs=0.04)
    assert not strangers(model, school._rows(validation, 500)).any()
    silent = school._rows(validation, 500, silent=True)
    assert strangers(model, silent).all() and not silent.features.has_past.any()


@pytest.fixture(scope="module")
def taught(chaos: Task) -> tuple[STONetwork, STONetwork]:
    """One with a single residual, one with two, after school."""
    models = []
    for count in (1, 2):
        network = chaos.config.network.model_copy(update={"residual_members": count})
        task = Task.of(chaos.dataset, chaos.config.model_copy(update={"network": network}))
        model = pupil(task)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(school_module, "CLEARLY", 2.0)  # whatever is learned is kept
            school_of(task, model=model, steps=8).fit(task.windows("validation"))
        models.append(model)
    return models[0], models[1]


def test_each_expert_is_taught_by_itself_and_learns_something_else(taught) -> None:
    """What the first one knows does not depend on whether there are others."""
    first, second = ({n: p.tolist() for n, p in m.state_dict().items()} for m in members(taught[1]))
    (alone,) = members(taught[0])
    assert first == {name: value.tolist() for name, value in alone.state_dict().items()}
    assert all(first[name] != second[name] for name, _ in alone.named_parameters())
    assert not any(p.requires_grad for model in taught for p in model.residuals.parameters())


def test_together_they_err_no_more_than_they_do_in_the_mean(taught, chaos: Task) -> None:
    rows = school_of(chaos, model=taught[1])._rows(chaos.windows("test"), 2000)
    each = [_error(rows, member) for member in members(taught[1])]
    total, count = rows.error(taught[1].residuals)
    assert float(total / count) <= np.mean(each) * (1 + 1e-6) and each[0] != each[1]


def members(model: STONetwork) -> list[ResidualMLP]:
    assert model.residuals is not None
    return list(model.residuals.members)


def test_members_see_the_rows_in_another_order_and_drop_something_else(task: Task) -> None:
    school = school_of(task)
    one, two = school.batch(3), school.batch(3, 1)
    assert content(one) == content(school.batch(3, 0)) != content(two)
    assert not torch.equal(one.features.white == 0, two.features.white == 0)
    assert content(two) == content(school_of(task).batch(3, 1))


def test_few_rows_of_many_points_are_spread_over_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether an residual is good is not asked of one corner of the map."""
    task = small_task(small_field("plane"))
    school, asked = school_of(task), []
    monkeypatch.setattr(school, "order", np.arange(600))

    def show(windows, chosen, nodes, points, augmentation):
        asked.append(points)
        return school_rows

    school_rows = school.rows.part(slice(0, 1))
    monkeypatch.setattr(school, "show", show)
    monkeypatch.setattr(PointSamples, "allocate", lambda self, size: self)
    monkeypatch.setattr(PointSamples, "put", lambda self, where, part: None)
    school._rows(task.windows("validation"), 1_000)
    met = np.sort(np.concatenate(asked))
    assert len(np.unique(met)) == len(met) < 400  # some of the points, none of them twice
    gaps = np.diff(np.append(met, met[0] + 600))
    assert gaps.max() <= 2 * 600 / len(asked)
