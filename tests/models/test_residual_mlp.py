"""The point-wise residual network: its formula, its samples, and its part in the forecast."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.contracts import (
    fitted_model,
    forecast,
    perturb,
    small_field,
    small_task,
    with_gaps,
)
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

TIMES = TimeSpec(step=SECOND, past=6, horizon=4, calendar=False)
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
    return ResidualMLP(6, 3, 5, TIMES, 2, places, 3)


def residual_only(kind: str, *settings: str) -> tuple[STONetwork, Windows]:
    """A network whose operator is zero and whose residual network is not; and windows."""
    task = small_task(small_field(kind, channels=2), *settings)
    model = perturb(fitted_model(task).model)
    assert isinstance(model, STONetwork) and model.base is not None and model.residuals is not None
    with torch.no_grad():
        model.project.weight.zero_()
        model.project.bias.zero_()
    return model, task.windows("train")


def unchanged(windows: int = len(EVERY), points: int = len(POINTS)) -> Augmentation:
    """All points with history and their own site statistics."""
    none = torch.zeros(windows, points, dtype=torch.bool)
    return Augmentation(none, none)


def no_history(windows: int = len(EVERY), points: int = 1) -> Augmentation:
    """All points without history but with their own site statistics."""
    none = torch.zeros(windows, points, dtype=torch.bool)
    return Augmentation(~none, none)


def test_the_untrained_output_is_zero() -> None:
    assert torch.equal(alone().double()(features()), torch.zeros(7, 5, 4))


def test_the_output_equals_the_formula() -> None:
    """h = gelu(W1 [z, base, time, here]); W3 (h + gelu(W2 h)), reduced without history.

    Zero at lead 0. `here` is place and site in standard deviations of the training points,
    clamped at three.
    """
    residual, seen = randomise(alone()).eval(), features()
    residual.middle.copy_(torch.tensor([0.1, 2.0]))
    residual.per_extent.copy_(torch.tensor([5.0, 0.25]))
    residual.far_share.fill_(0.3)
    assert seen.has_past.any() and not seen.has_past.all() and seen.site.abs().max() > 3
    output = residual(seen)
    assert torch.equal(output[:, 0], torch.zeros(7, 4))
    for row in range(7):
        x, y = seen.place[row].tolist()
        here = [(x - 0.1) / 0.2, (y - 2.0) / 4.0, *seen.site[row].tolist()]
        here = [min(3.0, max(-3.0, value)) for value in here]
        known = [*seen.white[row], *seen.base[row].flatten(), *seen.time[row], *here]
        state = gelu(residual.first(torch.tensor(known, dtype=F64)))
        wanted = residual.out(state + gelu(residual.hidden(state))).view(4, 4)
        wanted = wanted * (1.0 if seen.has_past[row] else 0.3)
        torch.testing.assert_close(output[row, 1:], wanted)


def test_positions_are_standardised_by_the_training_points() -> None:
    residual = alone()
    torch.testing.assert_close(residual.middle, torch.tensor([1 / 6, 3.0]))
    torch.testing.assert_close(residual.per_extent, torch.tensor([18**0.5, (3 / 8) ** 0.5]))


def test_directions_without_variation_have_no_influence() -> None:
    line = torch.stack([torch.linspace(0, 1, 5), torch.ones(5)], dim=1)
    residual, seen = randomise(alone(line)).eval(), features()
    residual.per_extent.copy_(alone(line).per_extent)
    aside = replace(seen, place=seen.place + torch.tensor([0.0, 7.0]))
    along = replace(seen, place=seen.place + torch.tensor([0.3, 0.0]))
    assert torch.equal(residual(aside), residual(seen))
    assert not torch.equal(residual(along), residual(seen))
    assert torch.isfinite(alone(torch.ones(1, 2)).per_extent).all()


def test_the_correction_adds_and_damps_the_base() -> None:
    base, add, share = torch.randn(3, 5, 2)
    output = torch.cat([add, share], dim=-1)
    torch.testing.assert_close(base + corrected(base, output), (1 - share) * base + add)


def test_an_ensemble_is_the_mean_of_its_members_and_has_no_gradients() -> None:
    members = [randomise(alone()) for _ in range(3)]
    for number, member in enumerate(members):
        member.out.bias.data += number
    residuals, seen = ResidualEnsemble(members), features()
    torch.testing.assert_close(residuals(seen), torch.stack([one(seen) for one in members]).mean(0))
    assert not any(p.requires_grad for p in residuals.parameters())


@KINDS
def test_samples_as_unseen_have_interpolated_site_statistics(kind: str) -> None:
    """With or without history; all other features are unchanged."""
    model, windows = residual_only(kind)
    as_unseen = torch.rand(len(EVERY), len(POINTS)) < 0.5
    augmentation = Augmentation(torch.rand(len(EVERY), len(POINTS)) < 0.5, as_unseen)
    rows = model.point_samples(windows, EVERY, model.nodes, POINTS, augmentation)
    own, guess = model.climatology.known, model.climatology.expected(model.nodes)
    shown = rows.features.site.unflatten(0, as_unseen.shape)
    for window, point in np.ndindex(as_unseen.shape):
        wanted = (guess if as_unseen[window, point] else own)[POINTS[point]]
        torch.testing.assert_close(shown[window, point], wanted)
    assert (own - guess).abs().max() > 0.1
    plain = model.point_samples(
        windows, EVERY, model.nodes, POINTS, replace(augmentation, as_unseen=~as_unseen)
    )
    for name in ("white", "has_past", "base", "time", "place"):
        assert torch.equal(getattr(plain.features, name), getattr(rows.features, name))


@KINDS
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_error_of_samples_is_that_of_the_forecast(kind: str, missing: float) -> None:
    """Samples use the nodes around single points, the forecast complete frames."""
    model, windows = residual_only(kind)
    if missing:
        field = windows.fields[0]
        mask = np.random.default_rng(0).random(field.values.shape) >= missing
        mask[:, 17, 1] = False  # a point without values of one channel
        windows = replace(windows, fields=(replace(field, mask=mask),))
    rows = model.point_samples(windows, EVERY, model.nodes, POINTS, unchanged())
    truth, seen = windows.targets(EVERY)
    with torch.no_grad():
        found = rows.error(model.residuals)
        result = forecast(model, windows.inputs(EVERY), model.nodes)
    wanted = masked_mae(result[:, :, POINTS], truth[:, :, POINTS], seen[:, :, POINTS])
    torch.testing.assert_close(torch.stack(found), torch.stack(wanted), rtol=1e-5, atol=1e-5)
    by_row = rows.base.unflatten(0, (len(EVERY), -1)).transpose(1, 2)
    assert (by_row - result[:, :, POINTS]).abs().max() > 0.05  # the residual network contributes


def test_targets_after_a_missing_frame_are_masked() -> None:
    """Their lead differs from their position."""
    model, windows = residual_only("plane")
    past, step = windows.time_spec.past, windows.time_spec.step
    late = windows.times + step * (np.arange(len(windows.times)) >= past + 2)
    windows = replace(windows, times=late)
    rows = model.point_samples(windows, np.arange(2), model.nodes, POINTS, unchanged(2))
    seen = rows.mask.unflatten(0, (2, -1)).all(-1).all(1)  # window future
    future = windows.time_spec.horizon
    wanted = [[k < 2 for k in range(future)], [k < 1 for k in range(future)]]
    assert seen.tolist() == wanted
    assert on_leads(torch.tensor([[1.2, 2.0, 4.0, 4.9]])).tolist() == [[True, True, False, False]]


@KINDS
def test_a_sample_without_history_is_the_forecast_with_hidden_values(kind: str) -> None:
    model, windows = residual_only(kind)
    batch, (truth, seen) = windows.inputs(EVERY), windows.targets(EVERY)
    observed = torch.ones_like(batch.frames, dtype=torch.bool)
    observed[:, 17] = False
    hidden = replace(batch, frames=batch.frames * observed, observed=observed)
    rows = model.point_samples(windows, EVERY, model.nodes, np.array([17]), no_history())
    with torch.no_grad():
        found, result = rows.error(model.residuals), forecast(model, hidden, model.nodes)[:, :, 17]
    wanted = masked_mae(result, truth[:, :, 17], seen[:, :, 17])
    torch.testing.assert_close(torch.stack(found), torch.stack(wanted), rtol=1e-4, atol=1e-4)


@KINDS
def test_a_sample_without_history_does_not_use_it(kind: str) -> None:
    model, windows = residual_only(kind)
    field, point = windows.fields[0], np.array([17])
    values = field.values.copy()
    values[:, 17] += np.random.default_rng(0).normal(size=values[:, 17].shape)
    other = replace(windows, fields=(replace(field, values=values),))
    for augmentation, same in ((no_history(), True), (unchanged(points=1), False)):
        one, two = (
            model.point_samples(part, EVERY, model.nodes, point, augmentation)
            for part in (windows, other)
        )
        assert torch.equal(one.features.white, two.features.white) is same
        assert torch.equal(one.base, two.base) is same
        assert torch.equal(one.features.base, two.features.base) is same
        assert torch.equal(one.features.time, two.features.time)


def test_samples_can_be_taken_and_stored() -> None:
    model, windows = residual_only("sphere")
    rows = model.point_samples(windows, EVERY, model.nodes, POINTS, unchanged())
    order = torch.randperm(len(rows))
    again = rows.allocate(len(rows))
    for some in (order[:5], order[5:]):
        again.put(some, rows.part(some))
    pairs = [(vars(part) | vars(part.features)) for part in (rows, again)]
    for name in (*vars(rows), *vars(rows.features)):
        assert name == "features" or torch.equal(pairs[0][name], pairs[1][name]), name


def test_the_correction_is_interpolated_between_leads() -> None:
    model, windows = residual_only("sphere")
    base, time_spec, queries = model.base, windows.time_spec, model.graphs(model.nodes).queries
    past = np.arange(30, 30 + time_spec.past)[None]
    issue = windows.times[past[:, -1:]]

    def at(leads: list[float]) -> torch.Tensor:
        future = issue + np.rint(np.array(leads) * time_spec.step).astype(np.int64)
        return make_batch(windows.at, windows.times, past, future, time_spec, False)

    whole = at([0, *range(1, time_spec.horizon + 1)])
    with torch.no_grad():
        regressors = base.regressors(whole, queries.stencil)
        here = queries.decoder.position, queries.site
        seen = model._point_features(
            regressors, base.at_trained_leads(regressors, whole), whole, queries.stencil, *here
        )
        output = model.residuals(seen).transpose(1, 2)
        plain = base.forecast(regressors, whole)
        wanted = plain + base.residual_scale(regressors, whole) * corrected(plain, output)
    result = forecast(model, whole, model.nodes)
    torch.testing.assert_close(result, wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(result[:, 0], plain[:, 0])  # nothing to correct at the issue time
    for lead in range(1, time_spec.horizon):
        around = forecast(model, at([lead - 1e-3, lead, lead + 1e-3]), model.nodes)
        torch.testing.assert_close(around, wanted[:, [lead] * 3], rtol=0, atol=0.02)


@KINDS
def test_the_correction_can_replace_the_base(kind: str) -> None:
    model, windows = residual_only(kind)
    with torch.no_grad():
        output = torch.tensor([0.25, -0.5, 1.0, 1.0])  # add these values, remove the base
        for member in model.residuals.members:
            member.out.weight.zero_()
            member.out.bias.copy_(output.repeat(windows.time_spec.horizon))
        model.base.rmse.fill_(1.0)
    found = forecast(model, with_gaps(windows.inputs(EVERY), 0.2), model.nodes)
    torch.testing.assert_close(found, output[:2].expand(found.shape), rtol=0, atol=1e-5)


def test_the_solar_elevation_is_an_input_on_a_sphere_with_calendar() -> None:
    """At seven steps for a horizon of three; none on a plane, or with network.sun=false."""
    for kind, wanted, settings in (
        ("sphere", True, ()),
        ("sphere", False, ("network.sun=false",)),
        ("plane", False, ()),
    ):
        model, windows = residual_only(kind, "data.horizon=3", *settings)
        assert windows.time_spec.sunny is wanted
        seen = model.point_samples(windows, EVERY, model.nodes, POINTS, unchanged()).features.time
        assert seen.shape[1] == 2 * windows.time_spec.features + 7 * wanted
        if wanted:
            stencil = model.graphs(model.nodes).queries.stencil
            sun = model.base.solar_elevation(windows.inputs(EVERY), stencil)
            torch.testing.assert_close(seen[:, -7:], sun[:, POINTS].flatten(0, 1))
