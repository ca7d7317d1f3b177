r"""Estimation of a LinearForecast: sums over rows, then a regression for each kind of history.

A row is one point in one window. One pass over the windows collects X'X and X'Y, separately for two
halves of the points. Points with history are fitted directly. Points without history are fitted
with the kriged history, drawn towards the former; the penalty is chosen such that the coefficients
of one half of the points suit the other half. Histories with gaps are fitted with imputed values as
noisy regressors, and a missing newest value as its expectation from the older ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from stonet.data.batch import Batch
from stonet.data.geometry import Points, curve_order
from stonet.data.resampling import interpolate, on_leads
from stonet.data.windows import Windows
from stonet.linear.imputation import error_variance
from stonet.linear.kriging import Covariance, fit_covariance
from stonet.linear.local_polynomials import Stencil, make_stencil
from stonet.linear.regression import (
    IMPUTED_SHARES,
    UNBOUNDED,
    LinearForecast,
    Regressors,
    Settled,
)
from stonet.linear.ridge import Beta, Moments, Penalty, best_penalty, solve
from stonet.system.progress import report_progress

MAX_ROWS = 600_000  # rows of the regression; more windows are thinned
TRAIN_PER_VALIDATION = 4  # training rows for each validation row
MIN_VALIDATION_ROWS = 64  # fewer give an RMSE by chance; then that of the training rows is used
FIRST_ROUND_ROWS = 60_000  # rows of the rounds before the last one, where targets have gaps
MAX_MULTIPLICATIONS = 1e11  # cost of X'X; regressions with many columns use fewer rows
ROWS_PER_COLUMN = 50  # rows that a regression has at least, whatever the cost
CHUNK_ROWS = 8_192  # rows that are computed together
MIN_WINDOWS = 1_024  # windows that every point should appear in; else patches of points are used
CONSECUTIVE_WINDOWS = 16  # windows of a patch that follow each other and share frames
WINDOW_RUNS = 16  # groups of such consecutive windows in a patch
COMPLETE_SHARE = 0.5  # share of complete rows from which on incomplete rows are left out
IMPUTATION_ROUNDS = 4  # alternations of filling targets and fitting
COVARIANCE_WINDOWS = 256  # windows from which the spatial covariance is estimated
COVARIANCE_VALUES = 2**24  # limit of their values, all nodes together
SAMPLE_WINDOWS = 64  # windows from which the share of complete targets is estimated
Pair = tuple[Moments, Moments]  # of two halves of the points; or of training and validation


@torch.no_grad()
def fit_linear(
    base: LinearForecast,
    train: Windows,
    validation: Windows,
    nodes: Points,
    max_rows: int = MAX_ROWS,
) -> None:
    """Estimate all coefficients; penalties are chosen on the validation windows.

    If `base.settled` is given, its penalties and errors are kept and validation has no say.

    If most targets have gaps, these are filled with the current forecast and its error at the
    observed leads around them, in several rounds. Without any observed target, the forecast remains
    persistence.

    Args:
        base: the linear forecast, changed in place.
        train: training windows.
        validation: validation windows.
        nodes: points of the windows.
        max_rows: rows of the regression.
    """
    base.set_covariance(field_covariance(train, nodes))
    base.lower.copy_(train.scaler.clip(torch.full_like(base.lower, -UNBOUNDED)))
    base.upper.copy_(train.scaler.clip(torch.full_like(base.upper, UNBOUNDED)))
    stencil = make_stencil(nodes, nodes, base.covariance).to(base.spacing.device, torch.float32)
    order = curve_order(nodes)
    base.history.fit(train, len(nodes))
    fill = _has_gaps(train)
    rounds = IMPUTATION_ROUNDS if fill else 1
    for number in range(rounds):
        last = number == rounds - 1
        rows = max_rows if last else FIRST_ROUND_ROWS
        fewer = max(rows // TRAIN_PER_VALIDATION, FIRST_ROUND_ROWS)
        sums = [
            _moments(base, part, stencil, order, fill, limit)
            for part, limit in ((train, rows), (validation, fewer))
        ]
        if any(part.count.sum() for part in sums[0]):
            if last:
                _solve(base, sums[0], sums[1], stencil)
            else:
                _solve_first(base, sums[0], sums[1])


def field_covariance(windows: Windows, nodes: Points) -> Covariance:
    """The spatial covariance of the newest values of some windows.

    Args:
        windows: of the training part.
        nodes: their points.
    """
    sample = windows.draw(min(COVARIANCE_WINDOWS, max(8, COVARIANCE_VALUES // len(nodes))))
    last = sample.starts + sample.time_spec.past - 1
    values, observed = sample.at(np.sort(last))
    return fit_covariance(values.double(), None if bool(observed.all()) else observed, nodes)


def _imputation_noise(base: LinearForecast, stencil: Stencil) -> Float64[np.ndarray, " column"]:
    """The error variance of each column if all inputs were imputed.

    A fit averages the errors of its nodes. Gaps often adjoin: twice the error of a single one is
    assumed. The newest value has none, since its absence is a kind of history.
    """
    channels, own = base.channels, base.own_columns
    error = 2 * error_variance(base.history.covariance).numpy().reshape(-1, channels)
    mixed = stencil.weight[0].double().square().sum(-1).mean(0).numpy()  # of each fit
    wide = error[: base.recent_lags, None] * mixed[2:, None]
    parts = [mixed[0] * error, error, mixed[1] * error, wide]
    noise = np.concatenate([part.ravel() for part in parts])
    noise[own : own + channels] = 0.0
    return np.pad(noise, (0, own + base.num_columns - len(noise)))


def _newest_from_older(base: LinearForecast) -> Float64[np.ndarray, "column channel"]:
    """The newest values of a point as a linear function of the columns with its older values."""
    mean, covariance = base.history.mean.numpy(), base.history.covariance.numpy()
    channels, own = base.channels, base.own_columns
    result = np.zeros((own + base.num_columns, channels))
    share = np.linalg.solve(covariance[channels:, channels:], covariance[channels:, :channels])
    result[own + channels : 2 * own] = share
    result[-1] = mean[:channels] - mean[channels:] @ share
    return result


def _solve_first(base: LinearForecast, train: Pair, validation: Pair) -> None:
    """Only the coefficients of complete histories, with which targets are filled."""
    own = base.own_columns + np.arange(base.num_columns)
    sums = _take((train[0] + train[1], validation[0] + validation[1]), own)
    if base.kind == "ridge":
        penalty = best_penalty([sums]) if base.settled is None else base.settled.with_history
        base.beta[0] = torch.from_numpy(solve(sums[0], penalty))


def _solve(base: LinearForecast, train: Pair, validation: Pair, stencil: Stencil) -> None:
    """The coefficients of every kind of history, their errors."""
    own = base.own_columns + np.arange(base.num_columns)
    kriged = np.where(own < 2 * base.own_columns, own - base.own_columns, own)
    sums = train[0] + train[1], validation[0] + validation[1]
    settled = base.settled
    if settled is None:
        with_history = best_penalty([_take(sums, own)])
        halves = _take((train[0], validation[1]), kriged), _take((train[1], validation[0]), kriged)
        enough = all(part.count.sum() for pair in halves for part in pair)
        folds = list(halves) if enough else [_take(sums, kriged)]
        without = best_penalty(folds, solve(sums[0].take(own), with_history))
    else:
        with_history, without = settled.with_history, settled.without
    noise = _imputation_noise(base, stencil)
    newest = own[: base.channels], _newest_from_older(base)
    for number, share in enumerate(IMPUTED_SHARES):
        kind = 4 * number
        noisy = sums[0].with_noise(share * noise), sums[1].with_noise(share * noise)
        beta = _store(base, kind, _take(noisy, own), with_history)
        _store(base, kind + 1, _take(noisy, kriged), without, beta)
        late = noisy[0].replaced(*newest), noisy[1].replaced(*newest)
        _store(base, kind + 2, _take(late, own), with_history)
        base.beta[kind + 3] = base.beta[kind + 1]  # without history there is no newest value
    if settled is not None:
        base.rmse.copy_(settled.rmse)
    base.settled = Settled(with_history, without, base.rmse.clone())


def _take(pair: Pair, columns: Int64[np.ndarray, " kept"]) -> Pair:
    return pair[0].take(columns), pair[1].take(columns)


def _store(
    base: LinearForecast,
    kind: int,
    sums: Pair,
    penalty: Penalty,
    prior: Beta | None = None,
) -> Beta:
    """Solve for a kind of history and store the solution and its error."""
    train, validation = sums
    beta = solve(train, penalty, prior)
    row, has_history = kind // 2, kind % 2 == 0
    if base.kind == "ridge":
        base.beta[kind] = torch.from_numpy(beta)
        if has_history:
            enough = validation.count.sum() >= MIN_VALIDATION_ROWS
            error = (validation if enough else train).error(beta)
            base.rmse[row] = torch.from_numpy(np.sqrt(np.maximum(error, 1e-12)))
    return beta


def _has_gaps(windows: Windows) -> bool:
    """Whether so few rows have all their targets that incomplete rows are needed."""
    usable, complete = 0, 0
    sample = windows.thin(SAMPLE_WINDOWS)
    for index in np.array_split(np.arange(len(sample)), max(1, len(sample) // 8)):
        mask = sample.targets(index)[1]
        usable += int(mask.flatten(3).any(-1).any(1).sum())
        complete += int(mask.all(-1).all(1).sum())
    return complete < COMPLETE_SHARE * usable


class _Patch(NamedTuple):
    """Some windows at some points."""

    chosen: Int64[np.ndarray, " window"]
    inputs: Windows  # at the nodes that the stencil uses
    targets: Windows  # at the points
    stencil: Stencil
    half: Bool[Tensor, " point"]  # the half of the points that each belongs to


def _patches(
    windows: Windows, stencil: Stencil, order: Int64[np.ndarray, " node"], rows: int
) -> Iterator[_Patch]:
    """The rows of the regression: all points in some windows, or patches of neighbouring points.

    Patches are used if all points would leave too few windows: a thousand points in a hundred
    windows sample little weather.
    """
    half = torch.empty(len(order), dtype=torch.bool)
    half[order.copy()] = torch.arange(len(order)) % 2 == 0  # neighbours in different halves
    if len(order) * min(MIN_WINDOWS, len(windows)) <= rows:
        chosen = _draw(len(windows), rows // len(order))
        yield _Patch(chosen, windows, windows, stencil, half)
        return
    count = min(CONSECUTIVE_WINDOWS * WINDOW_RUNS, len(windows))
    size = min(CHUNK_ROWS // count, len(order))
    patches = max(1, rows // (count * size))
    starts = np.linspace(0, len(order) - size, 2 * patches + 1)[1::2]  # the middle of each part
    for number, start in enumerate(starts.round().astype(np.int64)):
        points = np.sort(order[start : start + size])
        local, near = stencil.take(torch.from_numpy(points)).restrict()
        chosen = _draw(len(windows), count, number, CONSECUTIVE_WINDOWS)
        yield _Patch(chosen, windows.take(near), windows.take(points), local, half[points])


def _draw(
    count: int, max_count: int, seed: int = 0, consecutive: int = 1
) -> Int64[np.ndarray, " chosen"]:
    """Random windows, in groups of consecutive ones; even spacing may miss hours of the day."""
    order = np.random.default_rng((max_count, seed)).permutation(math.ceil(count / consecutive))
    chosen = (consecutive * order[:, None] + np.arange(consecutive)).ravel()
    return np.sort(chosen[chosen < count][:max_count])


def _moments(
    base: LinearForecast,
    windows: Windows,
    stencil: Stencil,
    order: Int64[np.ndarray, " node"],
    fill: bool,
    max_rows: int,
) -> Pair:
    """X'X, X'Y and Y'Y by hour of the day, for each half of the points.

    The columns of X are the kriged history, then the regressors.
    """
    columns, leads = base.own_columns + base.num_columns, base.time_spec.horizon + 1
    result = tuple(Moments.zeros(base.num_hours, columns, leads, base.channels) for _ in range(2))
    rows = min(max_rows, int(max(MAX_MULTIPLICATIONS / columns**2, ROWS_PER_COLUMN * columns)))
    done, total = 0, min(rows, len(windows) * len(order))
    for patch in _patches(windows, stencil, order, rows):
        size = max(1, CHUNK_ROWS // len(patch.half))
        for index in (patch.chosen[i : i + size] for i in range(0, len(patch.chosen), size)):
            report_progress(min(done, total), total)
            done += len(index) * len(patch.half)
            _add(base, patch, index, fill, result)
    return result[0], result[1]


def _add(
    base: LinearForecast,
    patch: _Patch,
    index: Int64[np.ndarray, " window"],
    fill: bool,
    result: tuple[Moments, ...],
) -> None:
    """Add the rows of some windows."""
    batch = patch.inputs.inputs(index)
    now = patch.targets.at(patch.targets.starts[index] + base.time_spec.past - 1)
    target, mask = patch.targets.targets(index)
    regressors = base.regressors(batch, patch.stencil)
    y = torch.cat([now[0][:, None], target], dim=1).transpose(1, 2).double()
    mask = mask & on_leads(batch.lead)[:, :, None, None]
    observed = torch.cat([now[1][:, None], mask], dim=1).transpose(1, 2)
    if fill:
        usable = regressors.has_history & observed[:, :, 1:].flatten(2).any(-1)
        y = _fill_targets(base, regressors, batch, y, observed)
    else:  # complete rows only, so that one X'X serves every lead
        usable = regressors.has_history & observed.flatten(2).all(-1)
    for hour in torch.unique(batch.hour % base.num_hours).tolist():
        at_hour = usable & (batch.hour % base.num_hours == hour)[:, None]
        for part, chosen in zip(result, (at_hour & patch.half, at_hour & ~patch.half), strict=True):
            part.add(hour, regressors.values[chosen].numpy(), y[chosen].numpy())


def _fill_targets(
    base: LinearForecast,
    regressors: Regressors,
    batch: Batch,
    y: Float64[Tensor, "batch query lead channel"],
    observed: Bool[Tensor, "batch query lead channel"],
) -> Float64[Tensor, "batch query lead channel"]:
    """Targets without gaps: the forecast plus its error, interpolated from the observed leads."""
    complete = replace(regressors, kind=torch.zeros_like(regressors.kind), num_kinds=1)
    expected = base.at_trained_leads(complete, batch)
    leads = torch.arange(y.shape[2], dtype=y.dtype)
    error = interpolate(
        (y - expected).transpose(1, 2),
        observed.transpose(1, 2),
        leads.expand(len(y), -1),
        leads,
    ).transpose(1, 2)
    error = torch.where(observed.any(2, keepdim=True), error, 0.0)
    return torch.where(observed, y, expected + error)
