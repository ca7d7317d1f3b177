"""The wave equation, its numerical scheme, and the data set simulated with it."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from stonet.data.field import Dataset
from stonet.datasets import DATASETS, open_dataset
from stonet.datasets.wave import (
    COURANT_SQUARED,
    DROPPED,
    SIZE,
    Sources,
    laplacian,
    propagate,
    simulate,
    wave,
    wave_on_grid,
)
from stonet.errors import DataError, UsageError


@pytest.fixture(scope="module")
def data() -> Dataset:
    return wave()


def solve(previous, current, push, steps, courant_squared=COURANT_SQUARED):
    """All frames, (steps, sequence, y, x)."""
    return np.stack(list(propagate(previous, current, push, courant_squared, steps)))


def at_rest(size, sequences=1):
    return np.zeros((sequences, size, size))


# The scheme


def standing_wave_error(intervals: int, courant_squared: float, end: float = 0.9) -> float:
    """The largest error at time `end` (c = 1) against sin(πx) sin(πy) cos(√2 π t)."""
    inside = np.arange(1, intervals) / intervals
    shape = np.sin(np.pi * inside)[:, None] * np.sin(np.pi * inside)
    dt = np.sqrt(courant_squared) / intervals
    steps = round(end / dt)

    def exact(time):
        return (shape * np.cos(np.sqrt(2) * np.pi * time))[None]

    zero = at_rest(intervals - 1)
    frames = solve(exact(-dt), exact(0.0), lambda step: zero, steps, courant_squared)
    return float(np.abs(frames[-1] - exact(steps * dt)).max())


def test_converges_to_the_standing_wave_with_second_order():
    # (c dt/dx)² = 0.09 and end = 0.9: dt divides the end exactly on all three grids
    errors = [standing_wave_error(intervals, 0.09) for intervals in (16, 32, 64)]
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    np.testing.assert_allclose(orders, 2.0, atol=0.1)
    assert errors[-1] < 1e-3


def test_standing_wave_is_exact_at_the_limit_of_stability():
    # sin²(ω dt/2) = 2 (c dt/dx)² sin²(π dx/2) gives ω dt = π dx there: no dispersion
    assert standing_wave_error(16, 0.5) < 1e-12


def test_without_sources_the_discrete_energy_is_conserved():
    """E = ½|u⁺ - u|² + ½ C <∇u⁺, ∇u>: take the scheme's product with u⁺ - u⁻ and sum by parts."""

    def gradients(u):
        padded = np.pad(u, ((0, 0), (1, 1), (1, 1)))
        return np.diff(padded, axis=1)[:, :, 1:-1], np.diff(padded, axis=2)[:, 1:-1]

    def energy(before, after):
        potential = sum(
            (one * other).sum()
            for one, other in zip(gradients(before), gradients(after), strict=True)
        )
        return 0.5 * ((after - before) ** 2).sum() + 0.5 * COURANT_SQUARED * potential

    previous, current = np.random.default_rng(0).standard_normal((2, 1, 24, 24))
    zero = at_rest(24)
    frames = [
        previous,
        current,
        *propagate(previous, current, lambda _: zero, COURANT_SQUARED, 600),
    ]
    energies = [energy(before, after) for before, after in pairwise(frames)]
    assert energies[0] > 0
    np.testing.assert_allclose(energies, energies[0], rtol=1e-12)


def test_the_scheme_is_reversible_in_time():
    previous, current = np.random.default_rng(1).standard_normal((2, 1, 20, 20))
    zero = at_rest(20)
    forward = solve(previous, current, lambda _: zero, 100)
    back = solve(forward[-1], forward[-2], lambda _: zero, 100)
    np.testing.assert_allclose(back[-2], current, atol=1e-10)
    np.testing.assert_allclose(back[-1], previous, atol=1e-10)


def test_rest_is_preserved_and_signals_travel_one_node_per_step():
    rest = at_rest(21)
    assert not solve(rest, rest, lambda _: rest, 50).any()
    kick = at_rest(21)
    kick[0, 10, 10] = 1.0
    frames = solve(rest, rest, lambda step: kick if step == 0 else rest, 8)
    row, column = np.indices((21, 21))
    distance = np.abs(row - 10) + np.abs(column - 10)
    for step, frame in enumerate(frames):
        np.testing.assert_array_equal(frame[0] != 0, distance <= step)


def test_sources_superpose():
    one, other = (Sources.draw(seed, [0, 1]) for seed in (1, 2))
    rest = at_rest(SIZE, 2)
    combined = solve(rest, rest, lambda t: 2.0 * one.push(t) - 0.5 * other.push(t), 120)
    separate = 2.0 * solve(rest, rest, one.push, 120) - 0.5 * solve(rest, rest, other.push, 120)
    np.testing.assert_allclose(combined, separate, atol=1e-13)


@pytest.mark.parametrize(
    "mirror", [lambda u: u[..., ::-1], lambda u: u[..., ::-1, :], lambda u: np.swapaxes(u, -1, -2)]
)
def test_a_mirrored_source_gives_the_mirrored_field(mirror):
    push, rest = Sources.draw(3, [0]).push, at_rest(SIZE)
    frames = solve(rest, rest, push, 150)
    mirrored = solve(rest, rest, lambda t: mirror(push(t)).copy(), 150)
    np.testing.assert_array_equal(mirrored, mirror(frames))


@pytest.mark.parametrize("courant_squared", [0.51, 0.0, -0.1, float("nan")])
def test_an_unstable_step_is_refused_before_it_starts(courant_squared):
    rest = at_rest(8)
    with pytest.raises(
        DataError, match=r"stable .* only for .* <= 0\.5\. Take a smaller time step"
    ):
        propagate(rest, rest, lambda _: rest, courant_squared, 1)


def test_the_limit_of_the_courant_number_is_where_instability_begins():
    kick, rest = np.random.default_rng(0).standard_normal((1, 32, 32)), at_rest(32)
    assert np.abs(solve(rest, kick, lambda _: rest, 400, 0.5)).max() < 1e3
    previous, current = rest, kick
    for _ in range(400):  # the same scheme without the check, slightly beyond the limit
        previous, current = current, 2 * current - previous + 0.52 * laplacian(current)
    assert np.abs(current).max() > 1e30


# The sources


def test_sources_are_positive_bounded_and_start_from_zero():
    sources = Sources.draw(0, range(50))
    assert not sources.push(0.0).any()
    count = (sources.load > 0).sum(axis=1)
    assert set(count) == {1, 2, 3} and set(sources.kind.ravel()) == {0, 1, 2}
    for time in (5.0, 60.0, 200.0):
        push = sources.push(time)
        assert push.min() >= 0
        assert np.all(push.sum(axis=(1, 2)) <= sources.load.sum(axis=1) * (1 + 1e-3))


def test_a_source_is_a_gaussian_at_its_position():
    sources = Sources.draw(4, range(40))
    row, column = np.indices((SIZE, SIZE))
    number = int(np.flatnonzero((sources.load[:, 1] == 0) & (sources.kind[:, 0] == 0))[0])
    home, orbit, angle, speed, radius, load = (
        getattr(sources, name)[number, 0]
        for name in ("home", "orbit", "angle", "speed", "radius", "load")
    )
    turned = angle + speed / orbit * 90.0
    x, y = home + orbit * np.array([np.cos(turned), np.sin(turned)])
    squared = (column - x) ** 2 + (row - y) ** 2
    bell = load / (2 * np.pi * radius**2) * np.exp(-squared / (2 * radius**2))
    np.testing.assert_allclose(sources.push(90.0)[number], bell, rtol=1e-9, atol=1e-18)


# The data set


def test_the_same_seed_gives_the_same_bits():
    first, again, other = (simulate(seed, range(3), 20) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert wave(5, 2, 3).points == wave(5, 1, 9).points != wave(6, 2, 3).points


def test_a_sequence_does_not_depend_on_other_sequences():
    many = simulate(7, range(6), 30)
    np.testing.assert_array_equal(simulate(7, [4], 30)[0], many[4])
    np.testing.assert_array_equal(simulate(7, [5, 2], 12), many[[5, 2], :12])
    nodes = np.array([3, 4095, 700])
    np.testing.assert_array_equal(simulate(7, range(6), 30, nodes), many[:, :, nodes])


def test_the_frames_solve_the_wave_equation_and_the_first_ones_are_dropped():
    sources, rest = Sources.draw(8, [0]), at_rest(SIZE)
    frames = solve(rest, rest, sources.push, DROPPED + 40)[DROPPED:, 0].reshape(40, -1)
    np.testing.assert_array_equal(simulate(8, [0], 40)[0], frames.astype(np.float32))


def test_halving_the_time_step_quarters_the_error_in_time():
    coarse, half, quarter = (
        simulate(9, range(4), 100, substeps=k)[:, ::k].astype(float) for k in (1, 2, 4)
    )
    ratio = np.abs(coarse - half).mean() / np.abs(half - quarter).mean()
    assert ratio == pytest.approx(4.0, abs=0.2)
    assert np.abs(coarse - half).mean() < 5e-5


def test_values_lie_in_the_published_range(data):
    values = np.stack([episode.values for episode in data.episodes])
    assert values.shape == (100, 200, 1024, 1)
    assert np.isfinite(values).all() and all(e.observed.all() for e in data.episodes)
    assert -0.09 < values.min() < -0.05 and 0.35 < values.max() < 0.45
    assert (values.std(axis=(1, 2, 3)) > 1e-3).all()  # no sequence is flat


def test_points_are_distinct_nodes_of_the_open_unit_square(data):
    points = data.points
    assert points.kind == "plane" and len(points) == len(set(points.names)) == 1024
    index = np.array([int(name[1:]) for name in points.names])
    expected = np.stack([index % 64 + 1, index // 64 + 1], axis=1) / 65
    np.testing.assert_array_equal(points.coordinates, expected)
    assert points.coordinates.min() > 0 and points.coordinates.max() < 1
    assert data.unseen == tuple(range(512, 1024))
    np.testing.assert_array_equal(data.seen, np.arange(512))


def test_episodes_have_the_same_times_without_a_calendar(data):
    for episode in data.episodes:
        np.testing.assert_array_equal(episode.times, 1_000_000 * np.arange(200))
        assert not episode.calendar and episode.channels == ("u",) and episode.units == ("1",)
    assert set(data.episodes[0].attrs) == {"title", "source", "licence"}


def test_the_full_grid_contains_the_data_set(data):
    full = wave_on_grid(17)
    index = np.array([int(name[1:]) for name in data.points.names])
    part = full.take(index)
    assert part.points == data.points
    np.testing.assert_array_equal(part.values, data.episodes[17].values)
    fine = wave_on_grid(17, frames=20, substeps=4)
    assert fine.step == 250_000 and fine.times[-1] == 19_000_000
    np.testing.assert_allclose(fine.values[::4], full.values[:20], atol=1e-3)


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seen": 4000}, "4000 seen and 512 unseen points of a grid with 4096"),
        ({"seen": 0}, "at least one seen point"),
        ({"frames": 0}, "at least one frame"),
        ({"sequences": 0}, "no episode"),
    ],
)
def test_impossible_data_sets_are_refused(options, message):
    with pytest.raises(DataError, match=message):
        wave(**{"sequences": 1, "frames": 1, **options})


def test_impossible_sequences_and_substeps_are_refused():
    with pytest.raises(DataError, match="sequence numbers from 0"):
        wave_on_grid(-1)
    with pytest.raises(DataError, match="one substep"):
        wave_on_grid(0, substeps=0)
    with pytest.raises(DataError, match="3 substeps do not divide"):
        wave_on_grid(0, substeps=3)


def test_data_sets_are_opened_by_name(data):
    assert "wave" in DATASETS
    opened = open_dataset("wave")
    assert opened.name == "wave" and opened.points == data.points
    np.testing.assert_array_equal(opened.episodes[-1].values, data.episodes[-1].values)
    with pytest.raises(UsageError, match=r"Unknown data set 'wav'\. .* Did you mean 'wave'\?"):
        open_dataset("wav")


def test_importing_datasets_imports_no_heavy_library():
    code = "import sys, stonet.datasets; print({'torch', 'scipy', 'xarray'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_seen_and_unseen_points_are_spread_equally() -> None:
    """Every sixteenth of the square has as many seen as unseen points."""
    data = wave(sequences=1, frames=2)
    sixteenth = np.floor(data.points.coordinates * 65 - 1).astype(int) // 16 @ [1, 4]
    held_out = np.isin(np.arange(len(data.points)), data.unseen)
    counts = [np.bincount(sixteenth[kind], minlength=16) for kind in (held_out, ~held_out)]
    assert counts[0].sum() == counts[1].sum() == 512
    assert np.abs(counts[0] - counts[1]).max() <= 1  # a drawn half would differ by 8 or so
    small = wave(sequences=1, frames=2, seen=30, unseen=10)
    assert small.unseen == tuple(range(30, 40))
