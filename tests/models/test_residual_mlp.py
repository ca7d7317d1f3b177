"""The residuals: silent until taught, blind to a past that is none, alike in rows and in frames."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.contracts import ask, fitted_run, small_field, small_task, stirred, with_gaps
from helpers.references import randomise
from torch.nn.functional import gelu

from stonet.data.batch import make_batch
from stonet.data.durations import SECOND
from stonet.data.resampling import on_leads
from stonet.data.time_spec import TimeSpec
from stonet.data.windows import Windows
from stonet.models.forecaster import masked_mae
from stonet.models.residual_mlp import (
    Augmentation,
    PointFeatures,
    ResidualEnsemble,
    ResidualMLP,
    corrected,
)
from stonet.models.stonet import STONetwork

CLOCK = TimeSpec(step=SECOND, past=6, horizon=4, calendar=False)
F64 = torch.float64
EVERY = np.arange(0, 60, 7)  # windows
POINTS = np.array([3, 17, 20])
KINDS = pytest.mark.parametrize("kind", ["plane", "sphere"])


def features(rows: int = 7) -> PointFeatures:
    generator = torch.Generator().manual_seed(1)
    shapes = ((6,), (4, 2), (3,), (2,), (3,))
    white, base, time, place, site = (
        torch.randn(rows, *shape, generator=generator, dtype=F64) for shape in shapes
    )
    has_past = torch.rand(rows, generator=generator) < 0.5
    return PointFeatures(white, has_past, base, time, place, 2 * site)


def alone(places: torch.Tensor | None = None) -> ResidualMLP:
    """One for six regressors, three features of the time, two channels and three statistics."""
    if places is None:
        places = torch.tensor([[0.0, 1.0], [0.0, 3.0], [0.5, 5.0]])
    return ResidualMLP(6, 3, 5, CLOCK, 2, places, 3)


def experts_alone(kind: str, *settings: str) -> tuple[STONetwork, Windows]:
    """A network whose operator says nothing and whose residuals say something; and windows."""
    task = small_task(small_field(kind, channels=2), *settings)
    model = stirred(fitted_run(task).model)
    assert isinstance(model, STONetwork) and model.base is not None and model.residuals is not None
    with torch.no_grad():
        model.project.weight.zero_()
        model.project.bias.zero_()
    return model, task.windows("train")


def heard(windows: int = len(EVERY), points: int = len(POINTS)) -> Augmentation:
    """Nobody is silent, nobody as_unseen."""
    nobody = torch.zeros(windows, points, dtype=torch.bool)
    return Augmentation(nobody, nobody)


def hushed(windows: int = len(EVERY), points: int = 1) -> Augmentation:
    """Everybody is silent, as those are that training knows."""
    nobody = torch.zeros(windows, points, dtype=torch.bool)
    return Augmentation(~nobody, nobody)


def test_it_starts_with_nothing_to_say() -> None:
    assert torch.equal(alone().double()(features()), torch.zeros(7, 5, 4))


def test_it_is_the_written_out_formula() -> None:
    """h = gelu(W1 [z, base, time, here]); W3 (h + gelu(W2 h)), of which a share without a past.

    Nothing at lead 0. Here: place and site, which count in standard deviations of the training
    points, up to three.
    """
    residual, seen = randomise(alone()).eval(), features()
    residual.middle.copy_(torch.tensor([0.1, 2.0]))
    residual.per_extent.copy_(torch.tensor([5.0, 0.25]))
    residual.far_share.fill_(0.3)
    assert seen.has_past.any() and not seen.has_past.all() and seen.site.abs().max() > 3
    advice = residual(seen)
    assert torch.equal(advice[:, 0], torch.zeros(7, 4))
    for row in range(7):
        x, y = seen.place[row].tolist()
        here = [(x - 0.1) / 0.2, (y - 2.0) / 4.0, *seen.site[row].tolist()]
        here = [min(3.0, max(-3.0, value)) for value in here]
        known = [*seen.white[row], *seen.base[row].flatten(), *seen.time[row], *here]
        state = gelu(residual.first(torch.tensor(known, dtype=F64)))
        wanted = residual.out(state + gelu(residual.hidden(state))).view(4, 4)
        wanted = wanted * (1.0 if seen.has_past[row] else 0.3)
        torch.testing.assert_close(advice[row, 1:], wanted)


def test_places_are_measured_by_the_training_points() -> None:
    residual = alone()
    torch.testing.assert_close(residual.middle, torch.tensor([1 / 6, 3.0]))
    torch.testing.assert_close(residual.per_extent, torch.tensor([18**0.5, (3 / 8) ** 0.5]))


def test_beside_a_line_of_points_it_is_as_on_the_line() -> None:
    """What training never varied is not known: no advice is made of it, and no division by it."""
    line = torch.stack([torch.linspace(0, 1, 5), torch.ones(5)], dim=1)
    residual, seen = randomise(alone(line)).eval(), features()
    residual.per_extent.copy_(alone(line).per_extent)
    aside = replace(seen, place=seen.place + torch.tensor([0.0, 7.0]))
    along = replace(seen, place=seen.place + torch.tensor([0.3, 0.0]))
    assert torch.equal(residual(aside), residual(seen))
    assert not torch.equal(residual(along), residual(seen))
    assert torch.isfinite(alone(torch.ones(1, 2)).per_extent).all()


def test_its_advice_adds_and_turns_the_base_down() -> None:
    base, add, share = torch.randn(3, 5, 2)
    advice = torch.cat([add, share], dim=-1)
    torch.testing.assert_close(base + corrected(base, advice), (1 - share) * base + add)


def test_several_say_the_mean_of_what_each_says_and_only_a_school_may_change_them() -> None:
    members = [randomise(alone()) for _ in range(3)]
    for number, member in enumerate(members):
        member.out.bias.data += number
    residuals, seen = ResidualEnsemble(members), features()
    torch.testing.assert_close(residuals(seen), torch.stack([one(seen) for one in members]).mean(0))
    assert not any(p.requires_grad for p in residuals.parameters())


def test_a_network_with_several_says_the_mean_of_those_with_one_of_them() -> None:
    model, windows = experts_alone("sphere", "network.residual_members=3")
    batch, members = windows.inputs(EVERY), list(model.residuals.members)
    together, alone = ask(model, batch, model.nodes), []
    for member in members:
        model.residuals = ResidualEnsemble([member])
        alone.append(ask(model, batch, model.nodes))
    torch.testing.assert_close(together, torch.stack(alone).mean(0), rtol=1e-5, atol=1e-5)
    assert all((one - together).abs().max() > 0.01 for one in alone)


def test_each_of_several_starts_with_a_mind_of_its_own() -> None:
    task = small_task(small_field(), "network.residual_members=3")
    first = [member.first.weight.tolist() for member in fitted_run(task).model.residuals.members]
    assert len(first) == 3 and first[0] != first[1] != first[2] != first[0]


@KINDS
def test_strange_points_look_as_their_neighbours_suggest_and_others_as_themselves(
    kind: str,
) -> None:
    """Whether they are heard or not: a school shows all silent ones as as_unseen."""
    model, windows = experts_alone(kind)
    as_unseen = torch.rand(len(EVERY), len(POINTS)) < 0.5
    augmentation = Augmentation(torch.rand(len(EVERY), len(POINTS)) < 0.5, as_unseen)
    rows = model.rows(windows, EVERY, model.nodes, POINTS, augmentation)
    own, guess = model.climatology.known, model.climatology.expected(model.nodes)
    shown = rows.features.site.unflatten(0, as_unseen.shape)
    for window, point in np.ndindex(as_unseen.shape):
        wanted = (guess if as_unseen[window, point] else own)[POINTS[point]]
        torch.testing.assert_close(shown[window, point], wanted)
    assert (own - guess).abs().max() > 0.1
    plain = model.rows(
        windows, EVERY, model.nodes, POINTS, replace(augmentation, as_unseen=~as_unseen)
    )
    for name in ("white", "has_past", "base", "time", "place"):  # nothing else is as_unseen
        assert torch.equal(getattr(plain.features, name), getattr(rows.features, name))


@KINDS
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_error_of_rows_is_that_of_the_forecast(kind: str, missing: float) -> None:
    """Single points, with the nodes around them alone, or whole frames: the same supervision."""
    model, windows = experts_alone(kind)
    if missing:
        field = windows.fields[0]
        mask = np.random.default_rng(0).random(field.values.shape) >= missing
        mask[:, 17, 1] = False  # one of the points never observed one of its channels
        windows = replace(windows, fields=(replace(field, mask=mask),))
    rows = model.rows(windows, EVERY, model.nodes, POINTS, heard())
    truth, seen = windows.targets(EVERY)
    with torch.no_grad():
        found = rows.error(model.residuals)
        forecast = ask(model, windows.inputs(EVERY), model.nodes)
    wanted = masked_mae(forecast[:, :, POINTS], truth[:, :, POINTS], seen[:, :, POINTS])
    torch.testing.assert_close(torch.stack(found), torch.stack(wanted), rtol=1e-5, atol=1e-5)
    by_row = rows.base.unflatten(0, (len(EVERY), -1)).transpose(1, 2)
    assert (by_row - forecast[:, :, POINTS]).abs().max() > 0.05  # the residual had its say


def test_a_target_after_a_missing_frame_teaches_nothing() -> None:
    """It is not as many steps ahead as its number says."""
    model, windows = experts_alone("plane")
    past, step = windows.time_spec.past, windows.time_spec.step
    late = windows.times + step * (np.arange(len(windows.times)) >= past + 2)
    windows = replace(windows, times=late)
    rows = model.rows(windows, np.arange(2), model.nodes, POINTS, heard(2))
    seen = rows.mask.unflatten(0, (2, -1)).all(-1).all(1)  # window future
    future = windows.time_spec.horizon
    wanted = [[k < 2 for k in range(future)], [k < 1 for k in range(future)]]
    assert seen.tolist() == wanted
    assert on_leads(torch.tensor([[1.2, 2.0, 4.0, 4.9]])).tolist() == [[True, True, False, False]]


@KINDS
def test_a_silent_point_of_a_row_is_one_whose_values_are_hidden(kind: str) -> None:
    model, windows = experts_alone(kind)
    batch, (truth, seen) = windows.inputs(EVERY), windows.targets(EVERY)
    observed = torch.ones_like(batch.frames, dtype=torch.bool)
    observed[:, 17] = False
    hidden = replace(batch, frames=batch.frames * observed, observed=observed)
    rows = model.rows(windows, EVERY, model.nodes, np.array([17]), hushed())
    with torch.no_grad():
        found, forecast = rows.error(model.residuals), ask(model, hidden, model.nodes)[:, :, 17]
    wanted = masked_mae(forecast, truth[:, :, 17], seen[:, :, 17])
    torch.testing.assert_close(torch.stack(found), torch.stack(wanted), rtol=1e-4, atol=1e-4)


@KINDS
def test_a_point_without_a_past_never_reads_its_own(kind: str) -> None:
    model, windows = experts_alone(kind)
    field, point = windows.fields[0], np.array([17])
    values = field.values.copy()
    values[:, 17] += np.random.default_rng(0).normal(size=values[:, 17].shape)
    other = replace(windows, fields=(replace(field, values=values),))
    for augmentation, same in ((hushed(), True), (heard(points=1), False)):
        one, two = (
            model.rows(part, EVERY, model.nodes, point, augmentation) for part in (windows, other)
        )
        assert torch.equal(one.features.white, two.features.white) is same
        assert torch.equal(one.base, two.base) is same
        assert torch.equal(one.features.base, two.features.base) is same
        assert torch.equal(one.features.time, two.features.time)


def test_rows_that_are_taken_and_put_are_the_rows() -> None:
    model, windows = experts_alone("sphere")
    rows = model.rows(windows, EVERY, model.nodes, POINTS, heard())
    order = torch.randperm(len(rows))
    again = rows.room(len(rows))
    for some in (order[:5], order[5:]):
        again.put(some, rows.part(some))
    pairs = [(vars(part) | vars(part.features)) for part in (rows, again)]
    for name in (*vars(rows), *vars(rows.features)):
        assert name == "features" or torch.equal(pairs[0][name], pairs[1][name]), name


def test_between_leads_advice_is_interpolated_and_at_leads_exact() -> None:
    model, windows = experts_alone("sphere")
    base, time_spec, links = model.base, windows.time_spec, model.graphs(model.nodes).links
    past = np.arange(30, 30 + time_spec.past)[None]
    issue = windows.times[past[:, -1:]]

    def at(leads: list[float]) -> torch.Tensor:
        asked = issue + np.rint(np.array(leads) * time_spec.step).astype(np.int64)
        return make_batch(windows.at, windows.times, past, asked, time_spec, False)

    whole = at([0, *range(1, time_spec.horizon + 1)])
    with torch.no_grad():
        look = base.regressors(whole, links.stencil)
        here = links.decoder.position, links.site
        seen = model._point_features(
            look, base.at_trained_leads(look, whole), whole, links.stencil, *here
        )
        advice = model.residuals(seen).transpose(1, 2)
        plain = base.forecast(look, whole)
        wanted = plain + base.scale(look, whole) * corrected(plain, advice)
    answer = ask(model, whole, model.nodes)
    torch.testing.assert_close(answer, wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(answer[:, 0], plain[:, 0])  # nothing to correct at the issue time
    for lead in range(1, time_spec.horizon):
        around = ask(model, at([lead - 1e-3, lead, lead + 1e-3]), model.nodes)
        torch.testing.assert_close(around, wanted[:, [lead] * 3], rtol=0, atol=0.02)


@KINDS
def test_it_can_turn_the_base_off(kind: str) -> None:
    model, windows = experts_alone(kind)
    with torch.no_grad():
        told = torch.tensor([0.25, -0.5, 1.0, 1.0])  # towards these values; all of the base
        for member in model.residuals.members:
            member.out.weight.zero_()
            member.out.bias.copy_(told.repeat(windows.time_spec.horizon))
        model.base.spread.fill_(1.0)
    forecast = ask(model, with_gaps(windows.inputs(EVERY), 0.2), model.nodes)
    torch.testing.assert_close(forecast, told[:2].expand(forecast.shape), rtol=0, atol=1e-5)


def test_it_knows_the_sun_only_where_there_is_one() -> None:
    """Seven at_trained_leads of a horizon of three on the sphere; none on a plane, or unless wanted."""
    for kind, wanted, settings in (
        ("sphere", True, ()),
        ("sphere", False, ("network.sun=false",)),
        ("plane", False, ()),
    ):
        model, windows = experts_alone(kind, "data.horizon=3", *settings)
        assert windows.time_spec.sunny is wanted
        seen = model.rows(windows, EVERY, model.nodes, POINTS, heard()).features.time
        assert seen.shape[1] == 2 * windows.time_spec.features + 7 * wanted
        if wanted:
            sun = model.base.sun(windows.inputs(EVERY), model.graphs(model.nodes).links.stencil)
            torch.testing.assert_close(seen[:, -7:], sun[:, POINTS].flatten(0, 1))
