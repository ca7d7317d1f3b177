"""SiteClimatology: statistics of the training points, interpolated to other places."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.contracts import HOUR, START, fitted_model, small_field, small_points, small_task

from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.data.scaling import Scaler
from stonet.data.time_spec import TimeSpec
from stonet.data.windows import Windows, cut
from stonet.models import site_climatology
from stonet.models.site_climatology import SiteClimatology
from stonet.training.run_folder import pack, unpack

DAILY = TimeSpec(step=HOUR, past=2, horizon=1, calendar=True)
PLAIN = replace(DAILY, calendar=False)
DAYS, NODES = 10, 12
FRAMES = 24 * DAYS + 2  # so that the windows' newest inputs make up expected days
KINDS = pytest.mark.parametrize("kind", ["plane", "sphere"])


def noise(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def windows(
    values: np.ndarray,
    points: Points | None = None,
    time_spec: TimeSpec = DAILY,
    observed: np.ndarray | None = None,
) -> Windows:
    """Every window of one episode (time, node, channel)."""
    field = Field(
        values.astype(np.float32),
        START + time_spec.step * np.arange(len(values)),
        small_points("plane", values.shape[1]) if points is None else points,
        tuple(f"c{i}" for i in range(values.shape[-1])),
        observed,
        calendar=time_spec.calendar,
    )
    return cut((field,), Scaler.identity(values.shape[-1]), time_spec)


def fitted(made: Windows) -> SiteClimatology:
    field = made.fields[0]
    climatology = SiteClimatology(made.time_spec, len(field.channels), field.points)
    climatology.fit(made)
    return climatology


def close(one: torch.Tensor, other: torch.Tensor | np.ndarray, within: float = 1e-4) -> None:
    torch.testing.assert_close(one, torch.as_tensor(other, dtype=one.dtype), rtol=0, atol=within)


def standardised(statistics: np.ndarray) -> np.ndarray:
    return (statistics - statistics.mean(0)) / statistics.std(0)


# Training points.


def test_the_statistics_are_mean_deviation_and_daily_harmonics() -> None:
    """u = m + a cos(turn + p) + b cos(2 turn + q): m, sqrt((a^2 + b^2) / 2), a cos p, -a sin p, ...

    Two channels, statistic by statistic.
    """
    m, a, p, b, q = noise(5, NODES, 2)
    hour = (START // HOUR + np.arange(FRAMES)) % 24
    turn = 2 * np.pi * hour[:, None, None] / 24
    found = fitted(windows(m + a * np.cos(turn + p) + b * np.cos(2 * turn + q))).known
    waves = (a * np.cos(p), -a * np.sin(p), b * np.cos(q), -b * np.sin(q))
    wanted = np.stack([m, np.sqrt((a**2 + b**2) / 2), *waves], axis=1)  # node statistic channel
    close(found, standardised(wanted.reshape(NODES, -1)))


def test_missing_values_have_no_influence() -> None:
    values, observed = noise(90, NODES, 2), np.random.default_rng(2).random((90, NODES, 2)) < 0.6
    turn = 2 * np.pi * ((START // HOUR + np.arange(90)) % 24) / 24
    waves = [wave(k * turn) for k in (1, 2) for wave in (np.cos, np.sin)]
    wanted = np.empty((NODES, 6, 2))
    for node, channel in np.ndindex(NODES, 2):
        frames = [t for t in range(1, 89) if observed[t, node, channel]]  # a window's newest input
        one = values[frames, node, channel]
        daily = [2 * np.mean((one - one.mean()) * wave[frames]) for wave in waves]
        wanted[node, :, channel] = [one.mean(), one.std(), *daily]
    found = fitted(windows(values, observed=observed)).known
    close(found, standardised(wanted.reshape(NODES, -1)))
    changed = windows(np.where(observed, values, 1e30), observed=observed)
    assert torch.equal(fitted(changed).known, found)


def test_points_with_few_values_are_interpolated() -> None:
    """And have no influence on others."""
    values, observed = noise(200, NODES, 2), np.ones((200, NODES, 2), bool)
    observed[:, 3], observed[5:, 7, 1] = False, False  # never, and one channel in five frames only
    found = fitted(windows(np.where(observed, values, 1e6), observed=observed))
    others = np.delete(np.arange(NODES), 3)
    points = small_points("plane", NODES).take(others)
    alone = fitted(windows(values[:, others], points, observed=observed[:, others]))
    close(found.known[others, ::2], alone.known[:, ::2], 1e-5)
    close(found.known[3], found.expected(found.nodes.take(np.array([3])))[0], 1e-5)
    changed = fitted(windows(np.where(observed, values, -1e3), observed=observed))
    assert torch.equal(changed.known, found.known)
    assert found.own.tolist() == [[n != 3, n not in (3, 7)] for n in range(NODES)]
    assert float(found.known.abs().max()) < 5
    none = fitted(windows(values, observed=np.zeros_like(observed)))
    assert not none.known.any() and not none.own.any()


def test_without_hours_there_are_no_harmonics() -> None:
    values = noise(60, NODES, 2)
    used = values[1:59]
    wanted = np.stack([used.mean(0), used.std(0)], axis=1).reshape(NODES, -1)
    close(fitted(windows(values, time_spec=PLAIN)).known, standardised(wanted))


def test_chunks_change_nothing(monkeypatch) -> None:
    made = windows(noise(90, NODES, 2))
    expected, elsewhere = fitted(made), small_points("plane", 7, seed=4)
    queries = expected.at(elsewhere)
    monkeypatch.setattr(site_climatology, "AT_ONCE", 40)
    monkeypatch.setattr(site_climatology, "ASKED", 3)
    close(fitted(made).known, expected.known, 1e-6)
    close(expected.at(elsewhere), queries, 1e-6)


def test_a_random_sample_of_frames_suffices(monkeypatch) -> None:
    level, turn = noise(NODES, 1), 2 * np.pi * np.arange(24 * 200 + 2)[:, None, None] / 24
    values = level + np.cos(turn) * noise(NODES, 1, seed=2) + 0.1 * noise(len(turn), NODES, 1)
    every = fitted(windows(values))
    monkeypatch.setattr(site_climatology, "FRAMES", 800)
    some = fitted(windows(values))
    assert not torch.equal(some.known, every.known)
    close(some.known[:, [0, 2]], every.known[:, [0, 2]], 0.05)  # mean and first harmonic


@pytest.mark.parametrize("value", [0.0, 7.5])
def test_a_constant_field_has_zero_statistics(value: float) -> None:
    climatology = fitted(windows(np.full((60, NODES, 1), value)))
    assert not climatology.known.any()
    assert not climatology.at(small_points("plane", 5, seed=3)).any()


@KINDS
def test_the_order_of_the_points_does_not_matter(kind: str) -> None:
    values, points = noise(60, 30, 1), small_points(kind, 30)
    order = np.random.default_rng(3).permutation(30)
    one, two = (
        fitted(windows(values, points)),
        fitted(windows(values[:, order], points.take(order))),
    )
    close(two.known, one.known[order], 1e-5)
    queries = small_points(kind, 9, seed=8)
    close(two.at(queries), one.at(queries), 1e-5)
    close(two.expected(points), one.expected(points), 1e-5)


def test_points_that_coincide_share_the_mean_of_their_statistics() -> None:
    values, points = noise(60, NODES, 1), small_points("plane", NODES)
    shared = points.coordinates.copy()
    shared[[4, 9]] = shared[2]
    statistics = np.stack([values[1:59].mean(0), values[1:59].std(0)], axis=1).reshape(NODES, -1)
    statistics[[2, 4, 9]] = statistics[[2, 4, 9]].mean(0)
    climatology = fitted(windows(values, Points(shared), PLAIN))
    close(climatology.known, standardised(statistics))
    for chosen in ([2], [4], [9], [4, 9], list(range(NODES))):
        queries = Points(shared).take(np.array(chosen))
        assert torch.equal(climatology.at(queries), climatology.known[chosen])


# Other places.


@pytest.fixture(scope="module", params=["plane", "sphere"])
def climatology(request) -> SiteClimatology:
    return fitted(windows(noise(60, 40, 2), small_points(request.param, 40)))


def test_training_points_have_their_statistics_and_other_places_interpolated_ones(
    climatology: SiteClimatology,
) -> None:
    """Together or one by one, in any order."""
    other, chosen = small_points(climatology.nodes.kind, 5, seed=6), np.array([31, 2, 17])
    mixed = other.joined(climatology.nodes.take(chosen))
    found = climatology.at(mixed)
    assert torch.equal(found[5:], climatology.known[chosen])
    close(found[:5], climatology.expected(other), 1e-6)
    alone = [climatology.at(mixed.take(np.array([i]))) for i in range(len(mixed))]
    close(torch.cat(alone), found, 1e-6)
    assert torch.equal(climatology.at(climatology.nodes), climatology.known)


def test_interpolation_at_a_training_point_does_not_use_it(climatology: SiteClimatology) -> None:
    before = climatology.expected(climatology.nodes)
    for node in (0, 17, 39):
        changed = fresh(climatology)
        changed.known[node] += 100
        after = changed.expected(climatology.nodes)
        assert torch.equal(after[node], before[node])
        assert (after != before).any(1).sum() > 3  # its neighbours use it


def test_interpolation_at_coincident_points_uses_none_of_them() -> None:
    twice = small_points("plane", 20)
    twice = Points(np.concatenate([twice.coordinates, twice.coordinates[:2]]))
    climatology = fitted(windows(noise(60, 22, 1), twice))
    before = climatology.expected(twice)
    climatology.known[[0, 20]] += 100
    after = climatology.expected(twice)
    assert torch.equal(after[[0, 20]], before[[0, 20]]) and not torch.equal(after, before)


def test_constants_are_interpolated_exactly(climatology: SiteClimatology) -> None:
    alike = fresh(climatology)
    alike.known.fill_(3.0)
    places = climatology.nodes.joined(small_points(climatology.nodes.kind, 9, seed=5))
    close(alike.expected(places), torch.full((49, climatology.statistics), 3.0), 1e-5)


@KINDS
def test_linear_fields_are_interpolated(kind: str) -> None:
    points, inside = small_points(kind, 200), small_points(kind, 300, seed=5)
    low, high = (np.quantile(points.coordinates, share, axis=0) for share in (0.1, 0.9))
    kept = ((inside.coordinates > low) & (inside.coordinates < high)).all(1)
    inside = inside.take(np.flatnonzero(kept))
    slope = noise(2, seed=2) / (high - low)

    def level(places: Points) -> np.ndarray:
        return places.coordinates @ slope

    values = level(points)[:, None] + 0.01 * noise(60, 200, 1)
    found, here = fitted(windows(values, points, PLAIN)), level(points)
    wanted = (level(inside) - here.mean()) / here.std()
    close(found.at(inside)[:, 0], wanted, 0.1)
    middle = ((points.coordinates > low) & (points.coordinates < high)).all(1)
    close(found.expected(points)[middle, 0], ((here - here.mean()) / here.std())[middle], 0.1)


@pytest.mark.parametrize("nodes", [1, 2])
def test_one_or_two_points_suffice(nodes: int) -> None:
    """A single point has no neighbours: zero is expected there."""
    climatology = fitted(windows(noise(60, nodes, 1), small_points("plane", nodes)))
    expected = climatology.expected(climatology.nodes)
    close(expected, climatology.known.flip(0) if nodes == 2 else torch.zeros_like(expected), 1e-6)
    assert climatology.at(Points(np.array([[5.0, 5.0]]))).isfinite().all()


def test_samples_as_unseen_are_interpolated(
    climatology: SiteClimatology,
) -> None:
    some = climatology.nodes.take(np.array([3, 30, 11]))
    as_unseen = torch.rand(6, 3) < 0.5
    shown, own, guess = (
        climatology.shown(some, as_unseen),
        climatology.at(some),
        climatology.expected(some),
    )
    for window, point in np.ndindex(6, 3):
        wanted = guess[point] if as_unseen[window, point] else own[point]
        assert torch.equal(shown[window, point], wanted)


# In a model.


def fresh(climatology: SiteClimatology) -> SiteClimatology:
    """A copy by way of a file."""
    saved, _ = unpack(pack(climatology.state_dict(), {}), "climatology")
    copy = SiteClimatology(
        climatology.time_spec, climatology.known.shape[1] // 6, climatology.nodes
    )
    copy.load_state_dict(saved)
    return copy


def test_saved_statistics_are_unchanged(climatology: SiteClimatology) -> None:
    queries = climatology.nodes.joined(small_points(climatology.nodes.kind, 9, seed=5))
    assert torch.equal(fresh(climatology).at(queries), climatology.at(queries))
    assert fresh(climatology).covariance.tolist() == climatology.covariance.tolist()
    assert not list(climatology.parameters())


@KINDS
def test_a_model_interpolates_from_its_training_points(kind: str) -> None:
    """Whichever points are the nodes."""
    trained = fitted_model(small_task(small_field(kind)))
    climatology, other = trained.model.climatology, small_points(kind, 6, seed=9)
    assert climatology.known.std(0, correction=0)[0] == pytest.approx(1, abs=1e-4)
    for nodes in (trained.nodes, other, trained.nodes.take(np.arange(5))):
        site = trained.model.graphs(nodes, trained.nodes).queries.site
        assert torch.equal(site, climatology.known)
        elsewhere = trained.model.graphs(nodes, other).queries.site
        close(elsewhere, climatology.expected(other), 1e-6)


def test_only_the_training_part_is_used() -> None:
    field = small_field("sphere")
    task = small_task(field)
    values = field.values.copy()
    values[len(task.parts["train"][0].times) :] *= 3
    other = small_task(replace(field, values=values))
    one, two = (fitted_model(part).model.climatology for part in (task, other))
    assert torch.equal(one.known, two.known) and torch.equal(one.covariance, two.covariance)
