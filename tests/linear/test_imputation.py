"""Gaps and odd times: the conditional expectation, digit by digit, from a point's own values."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from helpers.contracts import Elsewhere

from stonet.linear import imputation
from stonet.linear.imputation import errors, fill_gaps, random_walk, resample

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
    """Values of three windows at five nodes, the newest first; and which of them are there."""
    seen = draw(2).random((3, LAGS, 5, CHANNELS)) < share
    seen[0, :, 1, 1] = seen[:, :, 3] = False  # a channel is never there, a node neither
    return torch.from_numpy(noise(3, LAGS, 5, CHANNELS)), torch.from_numpy(seen)


def told(size: int = BOTH) -> tuple[torch.Tensor, torch.Tensor]:
    """A mean and a covariance."""
    return torch.from_numpy(noise(size, seed=5)), torch.from_numpy(some_covariance(size))


def walk(lags: int = LAGS, channels: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(lags * channels, dtype=F64), random_walk(lags, channels)


def close(one: torch.Tensor, other: torch.Tensor | np.ndarray, within: float = 1e-10) -> None:
    torch.testing.assert_close(one, torch.as_tensor(other), rtol=0, atol=within)


# Gaps


def test_gaps_are_filled_with_the_conditional_expectation() -> None:
    """m + C H' (H C H')^-1 (y - H m), node by node; what is there stays."""
    (values, seen), (mean, covariance) = pasts(), told()
    filled, m, c = fill_gaps(values, seen, mean, covariance), mean.numpy(), covariance.numpy()
    close(filled[seen], values[seen], 1e-14)
    for b, node in np.ndindex(3, 5):
        there = np.flatnonzero(seen[b, :, node].numpy().ravel())
        y = values[b, :, node].numpy().ravel()[there]
        weight = np.linalg.solve(c[np.ix_(there, there)], y - m[there])
        wanted = (m + c[:, there] @ weight).reshape(LAGS, CHANNELS)
        close(filled[b, :, node], wanted * seen[b, :, node].any(0).numpy())


def test_no_other_filling_errs_less_in_the_mean() -> None:
    """Pasts drawn from a normal distribution: what is left over is what the covariance says."""
    mean, covariance = told(4)
    root = torch.linalg.cholesky(covariance)
    rows = mean + torch.from_numpy(noise(40_000, 4)) @ root.T
    values = rows.view(-1, 4, 1, 1)
    seen = torch.tensor([True, False, True, True]).view(1, 4, 1, 1).expand_as(values)
    wrong = (fill_gaps(values.clone(), seen, mean, covariance) - values)[:, 1].flatten()
    assert float(wrong.square().mean()) == pytest.approx(float(errors(covariance)[1]), rel=0.03)
    assert abs(float(wrong.mean())) < 0.02
    others = (values[:, [0, 2, 3]] - mean[[0, 2, 3], None, None])[:, :, 0, 0]
    assert float((others * wrong[:, None]).mean(0).abs().max()) < 0.02  # nothing is left in them


def test_the_error_is_what_all_other_values_leave_unsaid() -> None:
    covariance = some_covariance()
    found = errors(torch.from_numpy(covariance))
    for number in range(BOTH):
        others = np.delete(np.arange(BOTH), number)
        among, to = covariance[np.ix_(others, others)], covariance[others, number]
        close(found[number], covariance[number, number] - to @ np.linalg.solve(among, to))


def test_of_a_random_walk_the_newest_is_a_step_away_and_those_between_half_of_one() -> None:
    """In variance; the oldest is a step away from the one after it, but for where walks begin."""
    found = errors(random_walk(6, 2)).view(6, 2)
    close(found, torch.tensor([1, 0.5, 0.5, 0.5, 0.5, 1], dtype=F64)[:, None].expand(6, 2), 1e-5)


def test_a_random_walk_is_filled_linearly_and_goes_on_as_it_ends() -> None:
    values, seen = pasts(0.4)
    filled, lag = fill_gaps(values, seen, *walk(channels=CHANNELS)), np.arange(LAGS)
    for b, node, channel in np.ndindex(3, 5, CHANNELS):
        there = np.flatnonzero(seen[b, :, node, channel])
        if len(there):
            wanted = np.interp(lag, there, values[b, there, node, channel])
            close(filled[b, :, node, channel], wanted, 1e-4)  # of where it begins it knows little


def test_a_missing_value_has_no_influence() -> None:
    values, seen = pasts()
    wild = values.where(seen, 1e30)
    assert torch.equal(fill_gaps(wild, seen, *told()), fill_gaps(values, seen, *told()))
    assert not torch.equal(fill_gaps(values + 1, seen, *told()), fill_gaps(values, seen, *told()))


@pytest.mark.parametrize("nodes", [1, 5])
def test_what_is_given_is_not_changed(nodes: int) -> None:
    values, seen = (part[:, :, :nodes].clone() for part in pasts())
    before = values.clone()
    fill_gaps(values, seen, *told())
    assert torch.equal(values, before)


def test_a_channel_that_is_never_there_stays_zero_and_the_others_are_filled_all_the_same() -> None:
    values, seen = pasts()
    filled = fill_gaps(values.where(seen, 1e30), seen, *told())
    known = seen.any(1, keepdim=True).expand_as(seen)
    assert not filled[~known].any() and (filled[known] != 0).all()
    mean, covariance = told()
    alone = fill_gaps(values[..., :1], seen[..., :1], mean[::2], covariance[::2, ::2])
    close(filled[0, :, 1, 0], alone[0, :, 1, 0])


def test_a_node_is_filled_as_if_it_were_alone() -> None:
    values, seen = pasts()
    filled = fill_gaps(values, seen, *told())
    for b, node in np.ndindex(3, 5):
        some = slice(b, b + 1), slice(None), slice(node, node + 1)
        close(fill_gaps(values[some].clone(), seen[some], *told()), filled[some], 1e-12)


def test_how_many_are_solved_together_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    values, seen = pasts()
    lag = -torch.arange(LAGS, dtype=F64).flip(0)[None] - 0.3 * torch.rand(3, LAGS, dtype=F64)
    filled, moved = fill_gaps(values, seen, *told()), resample(values, seen, lag, *told())
    monkeypatch.setattr(imputation, "NUMBERS", 1)
    close(fill_gaps(values, seen, *told()), filled, 1e-12)
    close(resample(values, seen, lag, *told()), moved, 1e-12)


def test_a_gpu_that_is_not_asked_who_has_gaps_is_told_the_same() -> None:
    values, seen = pasts()
    there = fill_gaps(values.as_subclass(Elsewhere), seen, *told())
    close(there.as_subclass(torch.Tensor), fill_gaps(values, seen, *told()))


def test_single_precision_goes_in_and_comes_out_and_is_solved_in_double() -> None:
    values, seen = pasts()
    single = fill_gaps(values.float(), seen, *told())
    assert single.dtype == torch.float32
    assert torch.equal(single, fill_gaps(values.float().double(), seen, *told()).float())


# Smooth pasts, whose covariance has next to no inverse


def waves(lags: int = 12) -> np.ndarray:
    """Seven functions of time: three slow waves in two phases each, and a constant."""
    t = np.arange(lags)
    return np.stack([np.ones(lags), *(np.cos(w * t + p) for w in (0.1, 0.25, 0.5) for p in (0, 1))])


def floored(lags: int = 12) -> np.ndarray:
    """The covariance of their sums at random, with the reference forecast that keeps it from being singular."""
    covariance = waves(lags).T @ waves(lags)
    return covariance + 1e-12 * covariance.diagonal().mean() * np.eye(lags)


def test_what_has_few_degrees_of_freedom_is_recovered_from_few_values() -> None:
    """Of straight lines with a swing: 4 numbers, told by any 5 of 12 values."""
    t = np.arange(12)
    basis = np.stack([np.ones(12), t / 12, np.cos(0.7 * t), np.sin(0.7 * t)])
    covariance = basis.T @ basis
    covariance = covariance + 1e-12 * covariance.diagonal().mean() * np.eye(12)
    rows = torch.from_numpy(noise(200, 4) @ basis).view(200, 12, 1, 1)
    kept = np.argsort(draw().random((200, 12)), axis=1) < 5
    seen = torch.from_numpy(kept)[..., None, None]
    mean = torch.zeros(12, dtype=F64)
    close(fill_gaps(rows, seen, mean, torch.from_numpy(covariance)), rows, 1e-3)


def exactly(covariance: np.ndarray, there: np.ndarray, y: np.ndarray) -> np.ndarray:
    """C[:, there] C[there, there]^-1 y in rational numbers, rounded once in the end."""
    c = [[Fraction(float(value)) for value in row] for row in covariance]
    rows = [[*(c[i][j] for j in there), Fraction(float(v))] for i, v in zip(there, y, strict=True)]
    for k in range(len(rows)):
        rows[k] = [value / rows[k][k] for value in rows[k]]
        for i in range(len(rows)):
            if i != k:
                rows[i] = [a - rows[i][k] * b for a, b in zip(rows[i], rows[k], strict=True)]
    weight = [(j, row[-1]) for j, row in zip(there, rows, strict=True)]
    return np.array([float(sum(row[j] * share for j, share in weight)) for row in c])


def test_little_is_lost_to_rounding_where_the_covariance_is_all_but_singular() -> None:
    """As rational numbers say it; far less than by the inverse, which has no digit to spare."""
    covariance, mean = floored(), torch.zeros(12, dtype=F64)
    assert np.linalg.cond(covariance) > 1e12
    inverse = np.linalg.inv(covariance)
    ours, plain = [], []
    for seed in range(12):
        y, there = noise(7, seed=seed) @ waves(), draw(seed).random(12) < 0.6
        here, gone = np.flatnonzero(there), np.flatnonzero(~there)
        wanted = exactly(covariance, here, y[here])
        values, seen = (torch.from_numpy(a).view(1, 12, 1, 1) for a in (y, there))
        filled = fill_gaps(values.where(seen, 0.0), seen, mean, torch.from_numpy(covariance))
        ours.append(np.abs(filled.flatten().numpy() - wanted)[gone].max())
        other = np.linalg.solve(inverse[np.ix_(gone, gone)], inverse[np.ix_(gone, here)] @ y[here])
        plain.append(np.abs(other + wanted[gone]).max())
    assert max(ours) < 1e-7 and max(ours) < 0.1 * max(plain), (ours, plain)


# Odd times


def between(covariance: np.ndarray, channel: int) -> float:
    """A quarter of the mean squared error of a cubic across two steps, from what is around."""
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
    """Weights of the whole steps: Lagrange's polynomial through the four around."""
    first = int(np.clip(np.floor(ago) - 1, 0, LAGS - 4))
    row = np.zeros(LAGS)
    for k in range(first, first + 4):
        others = [j for j in range(first, first + 4) if j != k]
        row[k] = np.prod([(ago - j) / (k - j) for j in others])
    return row


@pytest.mark.parametrize("rows", [1, 3])
def test_odd_times_are_moved_by_the_conditional_expectation(rows: int) -> None:
    """m + C H' (H C H' + R)^-1 (y - H m): H a cubic, R its error, 0 at whole steps, most between.

    What is older than the past is taken for its oldest, with the error of as many steps.

    One lag for all windows, or one for each.
    """
    ago = -np.sort(-draw(3).uniform(0, LAGS + 2, (rows, 11)), axis=1)
    ago[:, -1], ago[:, 4] = 0, np.round(ago[:, 4])
    values, seen = noise(3, 11, 4, CHANNELS), draw(4).random((3, 11, 4, CHANNELS)) < 0.7
    mean, covariance = told()
    moved = resample(*(torch.from_numpy(a) for a in (values, seen, -ago)), mean, covariance)
    m, c = mean.numpy(), covariance.numpy()
    for b, node in np.ndindex(3, 4):
        picks, error, y = [], [], []
        for i, channel in np.argwhere(seen[b, :, node]):
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
        close(moved[b, :, node], (m + c @ h.T @ weight).reshape(LAGS, CHANNELS), 1e-9)


def test_at_whole_steps_moving_is_filling() -> None:
    """But for channels that are never there, of which it says what the others suggest."""
    values, seen = pasts()
    lag = torch.arange(1.0 - LAGS, 1.0, dtype=F64)[None]
    moved = resample(values.flip(1), seen.flip(1), lag, *told())
    known = seen.any(1, keepdim=True)
    close(moved * known, fill_gaps(values, seen, *told()), 1e-9)
    close(moved[:, :, 3], told()[0].view(1, LAGS, CHANNELS).expand(3, -1, -1))  # by none: the mean


def test_what_is_missing_has_no_influence_at_odd_times_either() -> None:
    values, seen = pasts()
    lag = -torch.from_numpy(np.sort(draw(6).uniform(0, LAGS - 1, (3, LAGS))).copy()).flip(1)
    moved = resample(values, seen, lag, *told())
    assert torch.equal(resample(values.where(seen, 1e30), seen, lag, *told()), moved)


def test_the_older_a_value_is_the_less_it_tells() -> None:
    """A node that has nothing else is known all the same; in the end it is as the mean has it."""
    values = torch.full((1, 1, 1, 1), 5.0, dtype=F64)
    covariance = 2 * torch.exp(-torch.arange(6, dtype=F64)[:, None].sub(torch.arange(6)).abs() / 3)
    moved = [
        resample(values, values > 0, torch.tensor([[-ago]], dtype=F64), torch.zeros(6, dtype=F64),
             covariance)[0, 0, 0, 0]
        for ago in (0.0, 3.0, 5.0, 6.0, 8.0, 1e9)
    ]  # fmt: skip
    assert moved == sorted(moved, reverse=True)
    close(moved[0], torch.tensor(5.0, dtype=F64))
    close(moved[-1], torch.tensor(0.0, dtype=F64), 1e-6)


def test_a_frame_that_is_lost_everywhere_is_solved_once_with_the_same_result() -> None:
    values, lag = pasts()[0][:, :, :4], -torch.arange(LAGS, dtype=F64).flip(0)[None] - 0.2
    seen = torch.ones_like(values, dtype=torch.bool)
    seen[:, 3] = False
    apart = torch.cat([seen, ~seen[:, :, :1]], dim=2)  # another node, with another mask
    more = torch.cat([values, values[:, :, :1]], dim=2)
    close(
        resample(more, apart, lag, *told())[:, :, :4], resample(values, seen, lag, *told()), 1e-11
    )


def test_a_node_is_moved_as_if_it_were_alone_and_a_window_too() -> None:
    values, seen = pasts()
    lag = -torch.from_numpy(np.sort(draw(6).uniform(0, LAGS - 1, (3, LAGS))).copy()).flip(1)
    moved = resample(values, seen, lag, *told())
    for b, node in np.ndindex(3, 5):
        some = slice(b, b + 1), slice(None), slice(node, node + 1)
        close(resample(values[some], seen[some], lag[b : b + 1], *told()), moved[some], 1e-12)


@pytest.mark.parametrize("lags", [4, 6, 7, 12])
def test_straight_lines_are_moved_without_loss(lags: int) -> None:
    """If pasts are known to be such; also from inputs that are older than the last whole step."""
    line = np.stack([np.ones(lags), np.arange(lags)])
    covariance = line.T @ line
    covariance = covariance + 1e-12 * covariance.diagonal().mean() * np.eye(lags)
    ago = np.arange(lags)[::-1] + draw().uniform(0, 0.49, (20, lags))
    ago[:, -1] = 0
    start, slope = noise(2, 20)
    values = torch.from_numpy(start[:, None] + slope[:, None] * ago)[..., None, None]
    moved = resample(
        values, torch.ones_like(values, dtype=torch.bool), torch.from_numpy(-ago),
        torch.zeros(lags, dtype=F64), torch.from_numpy(covariance),
    )  # fmt: skip
    close(moved[..., 0, 0], start[:, None] + slope[:, None] * np.arange(lags), 1e-3)


@pytest.mark.parametrize("lags", [3, 6, 7, 12])
def test_what_does_not_change_is_moved_without_loss_by_a_random_walk(lags: int) -> None:
    """Whether the newest value is there or not."""
    lag = torch.arange(1.0 - lags, 1.0, dtype=F64)[None] - 0.5
    lag[:, -1] = 0
    values = torch.full((1, lags, 2, 1), 3.0, dtype=F64)
    seen = torch.ones_like(values, dtype=torch.bool)
    seen[:, -1, 1] = False
    moved = resample(values, seen, lag, *walk(lags))
    close(moved, values, 1e-3)
