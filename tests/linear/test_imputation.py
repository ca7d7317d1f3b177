"""Imputation: gaps and irregular times are replaced by the conditional expectation."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from helpers.contracts import FakeGpuTensor

from stonet.linear.imputation import error_variance, fill_gaps, random_walk, resample

LAGS, CHANNELS = 9, 2
BOTH = LAGS * CHANNELS
F64 = torch.float64


def draw(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def noise(*shape: int, seed: int = 1) -> np.ndarray:
    return draw(seed).normal(size=shape)


def some_covariance(size: int = BOTH) -> np.ndarray:
    root = noise(size, size + 3, seed=7)
    return root @ root.T / size


def pasts(share: float = 0.6) -> tuple[torch.Tensor, torch.Tensor]:
    """Values of three windows at five nodes, newest first, and which of them are observed."""
    observed = draw(2).random((3, LAGS, 5, CHANNELS)) < share
    observed[0, :, 1, 1] = observed[:, :, 3] = False  # a channel and a node without any value
    return torch.from_numpy(noise(3, LAGS, 5, CHANNELS)), torch.from_numpy(observed)


def prior(size: int = BOTH) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and covariance of a past."""
    return torch.from_numpy(noise(size, seed=5)), torch.from_numpy(some_covariance(size))


def walk(lags: int = LAGS, channels: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(lags * channels, dtype=F64), random_walk(lags, channels)


def close(one: torch.Tensor, other: torch.Tensor | np.ndarray, within: float = 1e-10) -> None:
    torch.testing.assert_close(one, torch.as_tensor(other), rtol=0, atol=within)


# Gaps.


def test_gaps_are_filled_with_the_conditional_expectation() -> None:
    """m + C H' (H C H')^-1 (y - H m), node by node; observed values are unchanged."""
    (values, observed), (mean, covariance) = pasts(), prior()
    filled, m, c = fill_gaps(values, observed, mean, covariance), mean.numpy(), covariance.numpy()
    close(filled[observed], values[observed], 1e-14)
    for b, node in np.ndindex(3, 5):
        there = np.flatnonzero(observed[b, :, node].numpy().ravel())
        y = values[b, :, node].numpy().ravel()[there]
        weight = np.linalg.solve(c[np.ix_(there, there)], y - m[there])
        wanted = (m + c[:, there] @ weight).reshape(LAGS, CHANNELS)
        close(filled[b, :, node], wanted * observed[b, :, node].any(0).numpy())


def test_the_imputation_error_is_minimal() -> None:
    """For normal pasts: the error has the expected variance and is orthogonal to the inputs."""
    mean, covariance = prior(4)
    root = torch.linalg.cholesky(covariance)
    rows = mean + torch.from_numpy(noise(40_000, 4)) @ root.T
    values = rows.view(-1, 4, 1, 1)
    observed = torch.tensor([True, False, True, True]).view(1, 4, 1, 1).expand_as(values)
    error = (fill_gaps(values.clone(), observed, mean, covariance) - values)[:, 1].flatten()
    assert float(error.square().mean()) == pytest.approx(
        float(error_variance(covariance)[1]), rel=0.03
    )
    assert abs(float(error.mean())) < 0.02
    others = (values[:, [0, 2, 3]] - mean[[0, 2, 3], None, None])[:, :, 0, 0]
    assert float((others * error[:, None]).mean(0).abs().max()) < 0.02


def test_the_error_variance_is_conditional_on_all_other_values() -> None:
    covariance = some_covariance()
    found = error_variance(torch.from_numpy(covariance))
    for number in range(BOTH):
        others = np.delete(np.arange(BOTH), number)
        among, to = covariance[np.ix_(others, others)], covariance[others, number]
        close(found[number], covariance[number, number] - to @ np.linalg.solve(among, to))


def test_the_error_variance_of_a_random_walk_is_one_step_at_its_ends_and_half_between() -> None:
    found = error_variance(random_walk(6, 2)).view(6, 2)
    close(found, torch.tensor([1, 0.5, 0.5, 0.5, 0.5, 1], dtype=F64)[:, None].expand(6, 2), 1e-5)


def test_a_random_walk_is_interpolated_linearly_and_extrapolated_as_a_constant() -> None:
    values, observed = pasts(0.4)
    filled, lag = fill_gaps(values, observed, *walk(channels=CHANNELS)), np.arange(LAGS)
    for b, node, channel in np.ndindex(3, 5, CHANNELS):
        there = np.flatnonzero(observed[b, :, node, channel])
        if len(there):
            wanted = np.interp(lag, there, values[b, there, node, channel])
            close(filled[b, :, node, channel], wanted, 1e-4)  # the variance of its start is finite


def test_a_missing_value_has_no_influence() -> None:
    values, observed = pasts()
    changed = values.where(observed, 1e30)
    assert torch.equal(
        fill_gaps(changed, observed, *prior()), fill_gaps(values, observed, *prior())
    )
    assert not torch.equal(
        fill_gaps(values + 1, observed, *prior()), fill_gaps(values, observed, *prior())
    )


@pytest.mark.parametrize("nodes", [1, 5])
def test_the_arguments_are_not_changed(nodes: int) -> None:
    values, observed = (part[:, :, :nodes].clone() for part in pasts())
    before = values.clone()
    fill_gaps(values, observed, *prior())
    assert torch.equal(values, before)


def test_a_channel_without_any_value_stays_zero_and_others_are_filled() -> None:
    values, observed = pasts()
    filled = fill_gaps(values.where(observed, 1e30), observed, *prior())
    known = observed.any(1, keepdim=True).expand_as(observed)
    assert not filled[~known].any() and (filled[known] != 0).all()
    mean, covariance = prior()
    alone = fill_gaps(values[..., :1], observed[..., :1], mean[::2], covariance[::2, ::2])
    close(filled[0, :, 1, 0], alone[0, :, 1, 0])


def test_nodes_and_windows_do_not_influence_each_other() -> None:
    values, observed = pasts()
    filled = fill_gaps(values, observed, *prior())
    for b, node in np.ndindex(3, 5):
        some = slice(b, b + 1), slice(None), slice(node, node + 1)
        close(fill_gaps(values[some].clone(), observed[some], *prior()), filled[some], 1e-12)


def test_chunks_change_nothing() -> None:
    values, observed = pasts()
    lag = -torch.arange(LAGS, dtype=F64).flip(0)[None] - 0.3 * torch.rand(3, LAGS, dtype=F64)
    filled, resampled = (
        fill_gaps(values, observed, *prior()),
        resample(values, observed, lag, *prior()),
    )
    close(fill_gaps(values, observed, *prior(), max_entries=1), filled, 1e-12)
    close(resample(values, observed, lag, *prior(), max_entries=1), resampled, 1e-12)


def test_the_computation_on_a_gpu_gives_the_same() -> None:
    values, observed = pasts()
    on_gpu = fill_gaps(values.as_subclass(FakeGpuTensor), observed, *prior())
    close(on_gpu.as_subclass(torch.Tensor), fill_gaps(values, observed, *prior()))


def test_single_precision_is_solved_in_double() -> None:
    values, observed = pasts()
    single = fill_gaps(values.float(), observed, *prior())
    assert single.dtype == torch.float32
    assert torch.equal(single, fill_gaps(values.float().double(), observed, *prior()).float())


# Smooth pasts, whose covariance is almost singular.


def waves(lags: int = 12) -> np.ndarray:
    """Seven functions of time: three slow waves in two phases each, and a constant."""
    t = np.arange(lags)
    return np.stack([np.ones(lags), *(np.cos(w * t + p) for w in (0.1, 0.25, 0.5) for p in (0, 1))])


def floored(lags: int = 12) -> np.ndarray:
    """The covariance of random sums of these waves, with a floor that keeps it regular."""
    covariance = waves(lags).T @ waves(lags)
    return covariance + 1e-12 * covariance.diagonal().mean() * np.eye(lags)


def test_pasts_with_few_degrees_of_freedom_are_recovered_from_few_values() -> None:
    """Straight lines plus an oscillation: 4 parameters, determined by any 5 of 12 values."""
    t = np.arange(12)
    basis = np.stack([np.ones(12), t / 12, np.cos(0.7 * t), np.sin(0.7 * t)])
    covariance = basis.T @ basis
    covariance = covariance + 1e-12 * covariance.diagonal().mean() * np.eye(12)
    rows = torch.from_numpy(noise(200, 4) @ basis).view(200, 12, 1, 1)
    kept = np.argsort(draw().random((200, 12)), axis=1) < 5
    observed = torch.from_numpy(kept)[..., None, None]
    mean = torch.zeros(12, dtype=F64)
    close(fill_gaps(rows, observed, mean, torch.from_numpy(covariance)), rows, 1e-3)


def exactly(covariance: np.ndarray, there: np.ndarray, y: np.ndarray) -> np.ndarray:
    """C[:, there] C[there, there]^-1 y in rational numbers, rounded once at the end."""
    c = [[Fraction(float(value)) for value in row] for row in covariance]
    rows = [[*(c[i][j] for j in there), Fraction(float(v))] for i, v in zip(there, y, strict=True)]
    for k in range(len(rows)):
        rows[k] = [value / rows[k][k] for value in rows[k]]
        for i in range(len(rows)):
            if i != k:
                rows[i] = [a - rows[i][k] * b for a, b in zip(rows[i], rows[k], strict=True)]
    weight = [(j, row[-1]) for j, row in zip(there, rows, strict=True)]
    return np.array([float(sum(row[j] * share for j, share in weight)) for row in c])


def test_rounding_errors_are_small_for_an_almost_singular_covariance() -> None:
    """Against rational arithmetic; the inverse covariance would lose far more digits."""
    covariance, mean = floored(), torch.zeros(12, dtype=F64)
    assert np.linalg.cond(covariance) > 1e12
    inverse = np.linalg.inv(covariance)
    ours, plain = [], []
    for seed in range(12):
        y, there = noise(7, seed=seed) @ waves(), draw(seed).random(12) < 0.6
        here, gone = np.flatnonzero(there), np.flatnonzero(~there)
        wanted = exactly(covariance, here, y[here])
        values, observed = (torch.from_numpy(a).view(1, 12, 1, 1) for a in (y, there))
        filled = fill_gaps(
            values.where(observed, 0.0), observed, mean, torch.from_numpy(covariance)
        )
        ours.append(np.abs(filled.flatten().numpy() - wanted)[gone].max())
        other = np.linalg.solve(inverse[np.ix_(gone, gone)], inverse[np.ix_(gone, here)] @ y[here])
        plain.append(np.abs(other + wanted[gone]).max())
    assert max(ours) < 1e-7 and max(ours) < 0.1 * max(plain), (ours, plain)


# Irregular times.


def between(covariance: np.ndarray, channel: int) -> float:
    """A quarter of the mean squared error of a cubic across two steps."""
    weight, found = {0: -1, 2: 9, 4: 9, 6: -1}, []
    c = covariance[channel::CHANNELS, channel::CHANNELS]
    for first in range(LAGS - 6):
        row = np.zeros(LAGS)
        row[first + 3] = -1
        for step, share in weight.items():
            row[first + step] += share / 16
        found.append(row @ c @ row)
    return float(np.mean(found)) / 4


def through_four(ago: float) -> np.ndarray:
    """Weights of the regular steps: the Lagrange polynomial through the four around."""
    first = int(np.clip(np.floor(ago) - 1, 0, LAGS - 4))
    row = np.zeros(LAGS)
    for k in range(first, first + 4):
        others = [j for j in range(first, first + 4) if j != k]
        row[k] = np.prod([(ago - j) / (k - j) for j in others])
    return row


@pytest.mark.parametrize("rows", [1, 3])
def test_irregular_times_are_resampled_by_the_conditional_expectation(rows: int) -> None:
    """m + C H' (H C H' + R)^-1 (y - H m): H a cubic, R its error, which is 0 at regular steps.

    Older observations count as the oldest step, with the error of as many steps. Lags are the same
    in all windows, or different.
    """
    ago = -np.sort(-draw(3).uniform(0, LAGS + 2, (rows, 11)), axis=1)
    ago[:, -1], ago[:, 4] = 0, np.round(ago[:, 4])
    values, observed = noise(3, 11, 4, CHANNELS), draw(4).random((3, 11, 4, CHANNELS)) < 0.7
    mean, covariance = prior()
    resampled = resample(*(torch.from_numpy(a) for a in (values, observed, -ago)), mean, covariance)
    m, c = mean.numpy(), covariance.numpy()
    for b, node in np.ndindex(3, 4):
        picks, error, y = [], [], []
        for i, channel in np.argwhere(observed[b, :, node]):
            back = min(ago[b % rows, i], LAGS - 1)
            oldest = c[channel::CHANNELS, channel::CHANNELS][-2:, -2:]
            step = oldest[0, 0] + oldest[1, 1] - 2 * oldest[0, 1]
            row = np.zeros((LAGS, CHANNELS))
            row[:, channel] = through_four(back)
            part = back - np.floor(back)
            picks.append(row.ravel())
            error.append((4 * part * (1 - part)) ** 2 * between(c, channel))
            error[-1] += (ago[b % rows, i] - back) * step
            y.append(values[b, i, node, channel])
        h, r = np.array(picks), np.diag(error)
        weight = np.linalg.solve(h @ c @ h.T + r, np.array(y) - h @ m)
        close(resampled[b, :, node], (m + c @ h.T @ weight).reshape(LAGS, CHANNELS), 1e-9)


def test_at_regular_steps_resampling_is_filling_gaps() -> None:
    """Except for channels without any value, which are estimated from the other channels."""
    values, observed = pasts()
    lag = torch.arange(1.0 - LAGS, 1.0, dtype=F64)[None]
    resampled = resample(values.flip(1), observed.flip(1), lag, *prior())
    known = observed.any(1, keepdim=True)
    close(resampled * known, fill_gaps(values, observed, *prior()), 1e-9)
    close(
        resampled[:, :, 3], prior()[0].view(1, LAGS, CHANNELS).expand(3, -1, -1)
    )  # no value: the mean


def test_a_missing_value_at_an_irregular_time_has_no_influence() -> None:
    values, observed = pasts()
    lag = -torch.from_numpy(np.sort(draw(6).uniform(0, LAGS - 1, (3, LAGS))).copy()).flip(1)
    resampled = resample(values, observed, lag, *prior())
    assert torch.equal(resample(values.where(observed, 1e30), observed, lag, *prior()), resampled)


def test_the_influence_of_a_value_decreases_with_its_age() -> None:
    """A single old value counts; at infinite age the result is the mean."""
    values = torch.full((1, 1, 1, 1), 5.0, dtype=F64)
    covariance = 2 * torch.exp(-torch.arange(6, dtype=F64)[:, None].sub(torch.arange(6)).abs() / 3)
    resampled = [
        resample(values, values > 0, torch.tensor([[-ago]], dtype=F64), torch.zeros(6, dtype=F64),
             covariance)[0, 0, 0, 0]
        for ago in (0.0, 3.0, 5.0, 6.0, 8.0, 1e9)
    ]  # fmt: skip
    assert resampled == sorted(resampled, reverse=True)
    close(resampled[0], torch.tensor(5.0, dtype=F64))
    close(resampled[-1], torch.tensor(0.0, dtype=F64), 1e-6)


def test_a_frame_that_is_missing_at_all_nodes_is_solved_once_with_the_same_result() -> None:
    values, lag = pasts()[0][:, :, :4], -torch.arange(LAGS, dtype=F64).flip(0)[None] - 0.2
    observed = torch.ones_like(values, dtype=torch.bool)
    observed[:, 3] = False
    apart = torch.cat([observed, ~observed[:, :, :1]], dim=2)  # another node, with another mask
    more = torch.cat([values, values[:, :, :1]], dim=2)
    close(
        resample(more, apart, lag, *prior())[:, :, :4],
        resample(values, observed, lag, *prior()),
        1e-11,
    )


def test_nodes_and_windows_are_resampled_independently() -> None:
    values, observed = pasts()
    lag = -torch.from_numpy(np.sort(draw(6).uniform(0, LAGS - 1, (3, LAGS))).copy()).flip(1)
    resampled = resample(values, observed, lag, *prior())
    for b, node in np.ndindex(3, 5):
        some = slice(b, b + 1), slice(None), slice(node, node + 1)
        close(
            resample(values[some], observed[some], lag[b : b + 1], *prior()), resampled[some], 1e-12
        )


@pytest.mark.parametrize("lags", [4, 6, 7, 12])
def test_straight_lines_are_resampled_exactly(lags: int) -> None:
    """With the covariance of lines; also from inputs older than the oldest step."""
    line = np.stack([np.ones(lags), np.arange(lags)])
    covariance = line.T @ line
    covariance = covariance + 1e-12 * covariance.diagonal().mean() * np.eye(lags)
    ago = np.arange(lags)[::-1] + draw().uniform(0, 0.49, (20, lags))
    ago[:, -1] = 0
    start, slope = noise(2, 20)
    values = torch.from_numpy(start[:, None] + slope[:, None] * ago)[..., None, None]
    resampled = resample(
        values, torch.ones_like(values, dtype=torch.bool), torch.from_numpy(-ago),
        torch.zeros(lags, dtype=F64), torch.from_numpy(covariance),
    )  # fmt: skip
    close(resampled[..., 0, 0], start[:, None] + slope[:, None] * np.arange(lags), 1e-3)


@pytest.mark.parametrize("lags", [3, 6, 7, 12])
def test_a_random_walk_resamples_constants_exactly(lags: int) -> None:
    """With and without the newest value."""
    lag = torch.arange(1.0 - lags, 1.0, dtype=F64)[None] - 0.5
    lag[:, -1] = 0
    values = torch.full((1, lags, 2, 1), 3.0, dtype=F64)
    observed = torch.ones_like(values, dtype=torch.bool)
    observed[:, -1, 1] = False
    resampled = resample(values, observed, lag, *walk(lags))
    close(resampled, values, 1e-3)
