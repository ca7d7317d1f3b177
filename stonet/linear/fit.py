r"""How LinearForecast finds its coefficients: sums of rows, then a regression for each kind of past.

One pass over the windows collects X'X and X'Y, for two halves of the points apart. From these sums
follow the coefficients of points with a past and, drawn towards them, of points without one, chosen
so that one half's coefficients suit the other half; and those of torn pasts, in which what was
filled counts as noise, and the newest value, where it is missing, as the older ones suggest it.
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
from stonet.data.windows import Windows, in_batches
from stonet.linear.imputation import errors
from stonet.linear.kriging import Covariance, evenly, fit_covariance
from stonet.linear.local_polynomials import Stencil, make_stencil
from stonet.linear.regression import BOUNDLESS, TORN, LinearForecast, Regressors
from stonet.linear.ridge import Beta, Moments, Penalty, best_penalty, solve
from stonet.system.progress import report_progress

MAX_ROWS = 600_000  # of the regression; more windows than that are thinned
JUDGING = 4  # times fewer judge them
JUDGES = 64  # that tell how large errors are; a handful may be right by chance
FIRST_ROWS = 60_000  # of the rounds before the last one, where gaps are filled
AT_ONCE = 8_192  # that are made at a time
VARIED = 1_024  # windows that points must be seen in; or else few points at a time are
RUN, RUNS = 16, 16  # in so many windows, of which some follow each other and share their frames
WORK = 1e11  # multiplications that X'X may take; many columns are fitted to fewer rows
ENOUGH = 0.5  # share of rows without a gap from which on the others are left out
FILLS = 4  # rounds of filling gaps and fitting again
SHOWN = 512  # nodes whose pasts are looked at
FLAT = 1e-12  # share of the variance that rounding may have made
LOOKED_AT, MOST = 256, 2**24  # windows whose covariance is looked at; values of theirs
Pair = tuple[Moments, Moments]  # of two halves of the points; or to fit, and to judge


@torch.no_grad()
def fit_linear(base: LinearForecast, train: Windows, validation: Windows, nodes: Points) -> None:
    """Solve for the coefficients; ridge and pull are chosen on the validation windows.

    Where most targets have gaps, these are filled with the current forecast and its error at the
    observed leads around them, a few times over. Where nothing was observed, the base stays
    persistence.
    """
    base.set_covariance(_covariance(train, nodes))
    base.low.copy_(train.scaler.clip(torch.full_like(base.low, -BOUNDLESS)))
    base.high.copy_(train.scaler.clip(torch.full_like(base.high, BOUNDLESS)))
    stencil = make_stencil(nodes, nodes, base.covariance).to(base.spacing.device, torch.float32)
    few = train.draw(64)
    filled = [few.inputs(i).gaps(base.time_spec.past) for i in in_batches(few, 8)]
    base.usual.fill_(float(np.mean([0.0 if g is None else float(g.mean()) for g in filled])))
    order = curve_order(nodes)
    _learn_pasts(base, train, len(nodes))
    fill = _has_gaps(train)
    rounds = FILLS if fill else 1
    for number in range(rounds):
        last = number == rounds - 1
        most = MAX_ROWS if last else FIRST_ROWS
        sums = [
            _moments(base, part, stencil, order, fill, rows)
            for part, rows in ((train, most), (validation, max(most // JUDGING, FIRST_ROWS)))
        ]
        if any(part.count.sum() for part in sums[0]):
            (_solve if last else _solve_first)(base, sums[0], sums[1], stencil)


def _covariance(windows: Windows, nodes: Points) -> Covariance:
    """From the newest values of some windows."""
    few = windows.draw(min(LOOKED_AT, max(8, MOST // len(nodes))))
    last = few.starts + few.time_spec.past - 1
    values, observed = few.at(np.sort(last))
    return fit_covariance(values.double(), None if bool(observed.all()) else observed, nodes)


def _learn_pasts(base: LinearForecast, windows: Windows, nodes: int) -> None:
    """Mean and covariance of the nodes' pasts; with gaps twice, first as a random walk fills them.

    Only nodes that have something of every channel tell how these go together.
    """
    some = windows.take(evenly(nodes, SHOWN))
    some = some.draw(max(1, FIRST_ROWS // min(nodes, SHOWN)))
    for _ in range(1 + bool(base.usual > 0)):
        rows = []
        for chosen in in_batches(some, RUN):
            values, known = base.pasts(some.inputs(chosen))
            pasts = values.transpose(1, 2).flatten(2).double()
            rows.append(pasts.flatten(0, 1) if known is None else pasts[known.all(-1)])
        every = torch.cat(rows)
        if len(every) <= base.block:  # too few to tell
            return
        spread = torch.cov(every.T, correction=0).reshape(base.past_covariance.shape)
        floor = FLAT * spread.diagonal().mean() + 1e-12
        base.past_mean.copy_(every.mean(0))
        base.past_covariance.copy_(spread + floor * torch.eye(base.block))


def _noise(base: LinearForecast, stencil: Stencil) -> Float64[np.ndarray, " column"]:
    """The variance that filled gaps would add to each column, if all inputs had some.

    A fit mixes the errors of its nodes. Gaps often touch: twice the error of a single one. The
    newest value is apart: where it is missing, coefficients are others.
    """
    channels, own = base.channels, base.block
    error = 2 * errors(base.past_covariance).numpy().reshape(-1, channels)
    mixed = stencil.weight[0].double().square().sum(-1).mean(0).numpy()  # of each group
    wide = error[: base.close, None] * mixed[2:, None]
    parts = [mixed[0] * error, error, mixed[1] * error, wide]
    noise = np.concatenate([part.ravel() for part in parts])
    noise[own : own + channels] = 0.0
    return np.pad(noise, (0, own + base.columns - len(noise)))


def _newest(base: LinearForecast) -> Float64[np.ndarray, "column channel"]:
    """The newest own values as the older ones lead one to expect them, by what is seen."""
    mean, covariance = base.past_mean.numpy(), base.past_covariance.numpy()
    channels, own = base.channels, base.block
    result = np.zeros((own + base.columns, channels))
    share = np.linalg.solve(covariance[channels:, channels:], covariance[channels:, :channels])
    result[own + channels : 2 * own] = share
    result[-1] = mean[:channels] - mean[channels:] @ share
    return result


def _solve_first(base: LinearForecast, train: Pair, validation: Pair, stencil: Stencil) -> None:
    """Only what gaps are filled by: the coefficients of whole pasts."""
    own = base.block + np.arange(base.columns)
    sums = _take((train[0] + train[1], validation[0] + validation[1]), own)
    if base.kind == "ridge":
        base.beta[0] = torch.from_numpy(solve(sums[0], best_penalty([sums])))


def _solve(base: LinearForecast, train: Pair, validation: Pair, stencil: Stencil) -> None:
    """The coefficients of every kind of past, their errors and the whitening."""
    own = base.block + np.arange(base.columns)
    far = np.where(own < 2 * base.block, own - base.block, own)  # others stand in for an own past
    sums = train[0] + train[1], validation[0] + validation[1]
    with_past = best_penalty([_take(sums, own)])
    halves = [_take((train[0], validation[1]), far), _take((train[1], validation[0]), far)]
    if not all(part.count.sum() for pair in halves for part in pair):
        halves = [_take(sums, far)]
    without = best_penalty(halves, solve(sums[0].take(own), with_past))
    ridge = with_past.ridge
    noise, newest = _noise(base, stencil), (own[: base.channels], _newest(base))
    for number, share in enumerate(TORN):
        kind, blurred = 4 * number, (sums[0].blurred(share * noise), sums[1].blurred(share * noise))
        beta = _keep(base, kind, _take(blurred, own), with_past, ridge)
        _keep(base, kind + 1, _take(blurred, far), without, ridge, beta)
        late = blurred[0].replaced(*newest), blurred[1].replaced(*newest)
        _keep(base, kind + 2, _take(late, own), with_past, ridge)
        base.beta[kind + 3] = base.beta[kind + 1]  # then the newest value of one is no matter


def _take(pair: Pair, columns: Int64[np.ndarray, " kept"]) -> Pair:
    return pair[0].take(columns), pair[1].take(columns)


def _keep(
    base: LinearForecast,
    kind: int,
    sums: Pair,
    choice: Penalty,
    ridge: float,
    prior: Beta | None = None,
) -> Beta:
    """Solve for a kind of past and remember the solution; `ridge` is what whitening calls noise."""
    fitted, judged = sums
    beta = solve(fitted, choice, prior)
    as_own, has_past = kind // 2, kind % 2 == 0
    if has_past:  # others stand in for one as if they were it
        base.white[as_own] = torch.from_numpy(fitted.whitening(ridge, base.width))
    if base.kind == "ridge":
        base.beta[kind] = torch.from_numpy(beta)
        if has_past:
            enough = judged.count.sum() >= JUDGES
            error = (judged if enough else fitted).error(beta)
            base.spread[as_own] = torch.from_numpy(np.sqrt(np.maximum(error, 1e-12)))
    return beta


def _has_gaps(windows: Windows) -> bool:
    """Whether so few rows have all their targets that the others are needed too."""
    some, whole = 0, 0
    few = windows.thin(64)
    for index in np.array_split(np.arange(len(few)), max(1, len(few) // 8)):
        mask = few.targets(index)[1]
        some += int(mask.flatten(3).any(-1).any(1).sum())
        whole += int(mask.all(-1).all(1).sum())
    return whole < ENOUGH * some


class _Patch(NamedTuple):
    """Some windows at some points, and what is seen there."""

    chosen: Int64[np.ndarray, " window"]
    inputs: Windows  # at the nodes that are seen
    targets: Windows  # at the points
    stencil: Stencil
    half: Bool[Tensor, " point"]


def _patches(
    windows: Windows, stencil: Stencil, order: Int64[np.ndarray, " node"], rows: int
) -> Iterator[_Patch]:
    """So many rows: all points, if that leaves windows enough; or neighbours, in windows of theirs.

    A thousand points in a hundred windows would have seen next to no weather.
    """
    half = torch.empty(len(order), dtype=torch.bool)
    half[order.copy()] = torch.arange(len(order)) % 2 == 0  # each among the other half's
    if len(order) * min(VARIED, len(windows)) <= rows:
        chosen = _drawn(len(windows), rows // len(order))
        yield _Patch(chosen, windows, windows, stencil, half)
        return
    count = min(RUN * RUNS, len(windows))
    size = min(AT_ONCE // count, len(order))
    patches = max(1, rows // (count * size))
    starts = np.linspace(0, len(order) - size, 2 * patches + 1)[1::2]  # in the middle of each part
    for number, start in enumerate(starts.round().astype(np.int64)):
        points = np.sort(order[start : start + size])
        local, near = stencil.take(torch.from_numpy(points)).around()
        chosen = _drawn(len(windows), count, number, RUN)
        yield _Patch(chosen, windows.take(near), windows.take(points), local, half[points])


def _drawn(count: int, most: int, seed: int = 0, run: int = 1) -> Int64[np.ndarray, " chosen"]:
    """At random: an even spread may meet few hours of the day. Some in a row, if wanted."""
    order = np.random.default_rng((most, seed)).permutation(math.ceil(count / run))
    chosen = (run * order[:, None] + np.arange(run)).ravel()
    return np.sort(chosen[chosen < count][:most])


def _moments(
    base: LinearForecast,
    windows: Windows,
    stencil: Stencil,
    order: Int64[np.ndarray, " node"],
    fill: bool,
    most: int,
) -> Pair:
    """X'X, X'Y and Y'Y for every hour of the day, for the points of one half and of the other.

    X begins with what stands in for an own past.
    """
    columns, at_trained_leads = base.block + base.columns, base.time_spec.horizon + 1
    result = tuple(
        Moments.zeros(base.hours, columns, at_trained_leads, base.channels) for _ in range(2)
    )
    rows = min(most, int(max(WORK / columns**2, 50 * columns)))
    done, total = 0, min(rows, len(windows) * len(order))
    for patch in _patches(windows, stencil, order, rows):
        size = max(1, AT_ONCE // len(patch.half))
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
    """The rows of some windows."""
    batch = patch.inputs.inputs(index)
    now = patch.targets.at(patch.targets.starts[index] + base.time_spec.past - 1)
    target, mask = patch.targets.targets(index)
    regressors = base.regressors(batch, patch.stencil)
    y = torch.cat([now[0][:, None], target], dim=1).transpose(1, 2).double()
    mask = mask & on_leads(batch.lead)[:, :, None, None]
    seen = torch.cat([now[1][:, None], mask], dim=1).transpose(1, 2)
    if fill:
        usable = regressors.own & seen[:, :, 1:].flatten(2).any(-1)
        y = _filled(base, regressors, batch, y, seen)
    else:  # whole rows only: one X'X serves every lead
        usable = regressors.own & seen.flatten(2).all(-1)
    for hour in torch.unique(batch.hour % base.hours).tolist():
        at_hour = usable & (batch.hour % base.hours == hour)[:, None]
        for part, chosen in zip(result, (at_hour & patch.half, at_hour & ~patch.half), strict=True):
            part.add(hour, regressors.seen[chosen].numpy(), y[chosen].numpy())


def _filled(
    base: LinearForecast,
    regressors: Regressors,
    batch: Batch,
    y: Float64[Tensor, "batch query knot channel"],
    seen: Bool[Tensor, "batch query knot channel"],
) -> Float64[Tensor, "batch query knot channel"]:
    """Targets with their gaps filled: the forecast plus its error at the leads around."""
    expected = base.at_trained_leads(
        replace(regressors, kind=torch.zeros_like(regressors.kind), kinds=1), batch
    )
    at_trained_leads = torch.arange(y.shape[2], dtype=y.dtype)
    error = interpolate(
        (y - expected).transpose(1, 2),
        seen.transpose(1, 2),
        at_trained_leads.expand(len(y), -1),
        at_trained_leads,
    ).transpose(1, 2)
    error = torch.where(seen.any(2, keepdim=True), error, 0.0)
    return torch.where(seen, y, expected + error)
