"""Influence: gradients equal finite differences; shares, responses and refusals."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.contracts import (
    HOUR,
    Case,
    as_float64,
    fitted_run,
    perturb,
    small_field,
    small_task,
    stirred_run,
    with_gaps,
)

from stonet.data.batch import Batch
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import UsageError
from stonet.inference.forecast import forecast
from stonet.inference.influence import influence, sensitivities
from stonet.models.forecaster import Forecaster, Graphs
from stonet.training.trained_model import TrainedModel

MODELS = {
    "last": ("network.anchor=last",),
    "blend": ("network.anchor=blend",),
    "linear anchor": ("network.anchor=linear",),
    "paper": ("model=stonet-paper",),
    "linear": ("model=linear",),
    "stgcn": ("model=stgcn",),
}
AWAY = Points(np.array([[0.41, 0.37]]))


@pytest.fixture(scope="module")
def field() -> Field:
    return small_field("sphere", channels=2)


@pytest.fixture(scope="module")
def trained() -> TrainedModel:
    return stirred_run()


def model_of(settings: tuple[str, ...]) -> tuple[Forecaster, Case]:
    case = Case.of(small_field("plane"), *settings)
    return perturb(case.fitted).double(), case


def finite_difference(
    model: Forecaster, batch: Batch, graphs: Graphs, entry: tuple[int, int], step: float = 1e-5
) -> torch.Tensor:
    """Central differences of all leads by one value."""
    made = []
    for sign in (1, -1):
        frames = batch.frames.clone()
        frames[entry] += sign * step
        with torch.no_grad():
            made.append(model(replace(batch, frames=frames), graphs).forecast[0, :, 0, 0])
    return (made[0] - made[1]) / (2 * step)


@pytest.mark.parametrize("gaps", [0.0, 0.2], ids=["complete", "gaps"])
@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
def test_gradients_equal_finite_differences(settings, gaps) -> None:
    """At a station and between stations, by values of any hour and station."""
    model, case = model_of(settings)
    batch = with_gaps(as_float64(case.windows.inputs(np.array([7]))), gaps)
    places = [case.nodes.take(np.array([5]))] + [AWAY] * model.inductive
    for place in places:
        graphs = model.graphs(case.nodes, place)
        made, gradient = sensitivities(model, batch, graphs, 0)
        assert made.dtype == torch.float64
        strongest = gradient.abs().sum(0)[..., 0]
        assert strongest.any()
        chosen = torch.topk(torch.where(batch.seen[..., 0], strongest, -1.0).flatten(), 3).indices
        any_others = torch.nonzero(batch.seen[..., 0].flatten())[[0, 40], 0]
        for position in [*chosen.tolist(), *any_others.tolist()]:
            entry = divmod(position, batch.frames.shape[1])
            expected = finite_difference(model, batch, graphs, entry)
            torch.testing.assert_close(gradient[:, *entry, 0], expected, rtol=1e-5, atol=1e-7)


def test_missing_values_have_no_influence() -> None:
    field = small_field("plane")
    trained = fitted_run(small_task(field, "network.anchor=linear"))
    values = np.array(field.values)
    values[-2:, 3] = np.nan
    found = influence(trained, replace(field, values=values, mask=None), AWAY)
    late = found.past_times > field.times[-3]
    assert found.by_station.sum() == pytest.approx(1)
    assert not found.sensitivity[:, late, 3].any() and not found.observed[late, 3].any()


def test_the_forecast_is_that_of_predict_and_a_rise_of_an_input_has_the_stated_effect(
    trained, field
) -> None:
    """In the data's units, with two channels of different spread."""
    place = Points(np.array([[41.0, 3.0]]), "sphere", ("place",))
    for number, channel in enumerate(field.channels):
        found = influence(trained, field, place, channel=channel)
        made = forecast(trained, field, place).values[:, 0, number]
        np.testing.assert_allclose(found.forecast, made, rtol=1e-5)
        past = found.past_times
        at = np.unravel_index(np.abs(found.sensitivity).sum(0).argmax(), found.observed.shape)
        frame, station, cause = (int(i) for i in at)
        rise, values = 0.05, np.array(field.values)
        values[np.flatnonzero(field.times == past[frame])[0], station, cause] += rise
        other = forecast(trained, replace(field, values=values, mask=None), place)
        effect = (other.values[:, 0, number] - made) / rise
        np.testing.assert_allclose(
            effect, found.sensitivity[:, frame, station, cause], rtol=0.05, atol=2e-3
        )


def test_shares_add_up_to_one_in_every_direction(trained, field) -> None:
    found = influence(trained, field, field.points.take(np.array([2])))
    for shares in (found.by_station, found.by_past, found.by_channel):
        assert (shares >= 0).all() and shares.sum() == pytest.approx(1)
    order = found.by_station[found.order]
    assert (np.diff(order) <= 0).all()
    np.testing.assert_allclose(found.response, found.sensitivity[..., 0].sum(1))
    np.testing.assert_allclose(found.profile.sum(1), found.response.mean(0))


def test_persistence_is_the_newest_value_of_the_station() -> None:
    """A closed form: the derivative by that value is 1, and all others are 0."""
    field = small_field("plane")
    trained = fitted_run(small_task(field, "model=persistence"))
    found = influence(trained, field, field.points.take(np.array([4])))
    expected = np.zeros_like(found.sensitivity)
    expected[:, -1, 4] = 1.0
    np.testing.assert_allclose(found.sensitivity, expected, atol=1e-6)
    assert found.by_station[4] == pytest.approx(1) and found.order[0] == 4
    assert found.distance[4] == 0 and found.past_times[-1] == field.times[-1]


def test_a_forecast_at_the_end_of_its_range_does_not_react() -> None:
    field = small_field("plane")
    trained = fitted_run(small_task(field, "model=persistence")).with_bounds({"u0": ":1000"})
    place = field.points.take(np.array([4]))
    newest = float(field.values[-1, 4, 0])
    clipped = trained.with_bounds({"u0": f":{newest - 0.5}"})
    found = influence(clipped, field, place)
    assert not found.sensitivity.any() and not found.by_station.any()
    assert found.forecast == pytest.approx(newest - 0.5)
    assert influence(trained, field, place).sensitivity.any()


def test_results_are_plain_json_with_all_stations(trained, field) -> None:
    found = influence(trained, field, field.points.take(np.array([2])), times=["+1h", "+150min"])
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert len(document["stations"]) == len(field.points)
    assert len(document["times"]) == len(document["forecast"]) == 2
    assert found.times[1] - field.times[-1] == 5 * HOUR // 2
    shares = [station["share"] for station in document["stations"]]
    assert shares == sorted(shares, reverse=True)


def test_two_places_and_unknown_channels_are_refused(trained, field) -> None:
    with pytest.raises(UsageError, match="2 places"):
        influence(trained, field, field.points.take(np.array([0, 1])))
    with pytest.raises(UsageError, match="u9"):
        influence(trained, field, field.points.take(np.array([0])), channel="u9")
