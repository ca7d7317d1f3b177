r"""Imputation: the past of a point at regular steps, from irregular or incomplete observations.

    E[u | y] = m + C H' (H C H' + R)^-1 (y - H m),     y = H u + errors of variance R

u is the past of a point at regular steps (all lags and channels), m and C its mean and covariance;
y are its observations. At regular steps H selects the observed values and R is 0; between them H is
cubic interpolation and R its error. m and C are at first those of a random walk, which fills gaps
by linear interpolation; `fit.py` estimates better ones. A node is imputed from its own values only.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from stonet.data.resampling import between_leads
from stonet.system.devices import to_device

MAX_MATRIX_ENTRIES = 2**22  # of the systems that are solved together
START_VARIANCE = 1e6  # of the first value of a random walk, in squared steps: almost unknown
# Differences between a value and a cubic through every other value around it; or a line, for
# pasts that are too short. Their variance measures the error of interpolation across two steps.
RESIDUAL_FILTERS = (
    torch.tensor([-1.0, 0, 9, -16, 9, 0, -1], dtype=torch.float64) / 16,
    torch.tensor([1.0, -2, 1], dtype=torch.float64) / 2,
)
HALF_STEP_SHARE = 0.25  # error variance of interpolation within one step over that across two
Past = Float[Tensor, "batch lag node channel"]
Observed = Bool[Tensor, "batch lag node channel"]
Mean = Float64[Tensor, " both"]  # lag, then channel
PastCovariance = Float64[Tensor, "both both"]


def random_walk(past: int, channels: int) -> PastCovariance:
    """The covariance of independent random walks with unit steps, newest value first.

    Args:
        past: number of steps.
        channels: number of channels.
    """
    steps = torch.arange(past, 0, -1, dtype=torch.float64)
    walk = START_VARIANCE + torch.minimum(steps[:, None], steps)
    return torch.kron(walk, torch.eye(channels, dtype=torch.float64))


def error_variance(covariance: PastCovariance) -> Float64[Tensor, " both"]:
    """The variance of the imputation error of each value, given all other values.

    Args:
        covariance: of the past values of a point.
    """
    return 1 / torch.linalg.inv(covariance).diagonal()


def fill_gaps(
    values: Past,
    observed: Observed,
    mean: Mean,
    covariance: PastCovariance,
    every_channel: bool = False,
    max_entries: int = MAX_MATRIX_ENTRIES,
) -> Past:
    """The past with every gap filled; channels that a node never observed stay zero.

    Args:
        values: at regular steps, newest first.
        observed: which of them exist.
        mean: m.
        covariance: C.
        every_channel: also fill channels that a node never observed, from its other channels.
        max_entries: of the systems that are solved together.
    """
    shape, any_value = (values.shape[1], values.shape[3]), observed.any(1, keepdim=True)
    if every_channel:
        any_value = any_value.any(-1, keepdim=True).expand_as(any_value)
    rows = values.transpose(1, 2).flatten(2)  # batch node (lag channel)
    rows = rows.to(torch.float64, copy=True)
    present = observed.transpose(1, 2).flatten(2)
    with_gaps = (observed != any_value).transpose(1, 2).flatten(2).any(-1)
    if values.device.type == "cpu":
        some = rows[with_gaps], present[with_gaps]
        rows[with_gaps] = _impute(*some, mean, covariance, max_entries)
    else:  # all rows: selecting those with gaps makes a GPU wait
        every = rows.flatten(0, 1), present.flatten(0, 1)
        rows = _impute(*every, mean, covariance, max_entries).view_as(rows)
    return rows.unflatten(2, shape).transpose(1, 2).to(values.dtype) * any_value


def _impute(
    rows: Float64[Tensor, "row both"],
    present: Bool[Tensor, "row both"],
    mean: Mean,
    covariance: PastCovariance,
    max_entries: int,
) -> Float64[Tensor, "row both"]:
    """The conditional expectations; rows with similar numbers of gaps are solved together."""
    root = torch.linalg.cholesky_ex(covariance).L  # `cholesky` makes a GPU wait
    whiten = torch.linalg.solve_triangular(root, _identity(covariance, len(mean)), upper=False).T
    anomaly, size = (rows - mean) * present, len(mean)
    if rows.device.type != "cpu":
        chunk = max(1, max_entries // size**2)
        parts = zip(anomaly.split(chunk), present.split(chunk), strict=True)
        return torch.cat([_conditional(*part, size, whiten) for part in parts]) + mean
    missing, limit = (~present).sum(-1), 1
    while limit < 2 * size:
        similar = torch.nonzero((missing <= limit) & (missing > limit // 2))[:, 0]
        for some in similar.split(max(1, max_entries // (limit * size))):
            anomaly[some] = _conditional(anomaly[some], present[some], min(limit, size), whiten)
        limit *= 2
    return anomaly + mean


def _conditional(
    anomaly: Float64[Tensor, "row both"],
    present: Bool[Tensor, "row both"],
    max_missing: int,
    whiten: Float64[Tensor, "both both"],
) -> Float64[Tensor, "row both"]:
    """The missing u that minimise |L^-1 (u - m)| with C = L L'; at most `max_missing` per row.

    By normal equations with one step of iterative refinement: as many equations as missing
    values, and far less loss of precision than with C^-1.
    """
    column = torch.argsort(present.byte(), dim=-1, stable=True)[:, :max_missing]
    gap = ~present.gather(1, column)
    free = whiten[column] * gap[..., None]
    residual = (anomaly @ whiten)[..., None]
    root = _masked_root(free @ free.transpose(1, 2), gap)
    for _ in range(2):
        change = torch.cholesky_solve(free @ residual, root) * gap[..., None]
        residual = residual - free.transpose(1, 2) @ change
        anomaly = anomaly.scatter_add(1, column, -change[..., 0])
    return anomaly


def resample(
    values: Float[Tensor, "batch past node channel"],
    observed: Bool[Tensor, "batch past node channel"],
    lag: Float[Tensor, "rows past"],
    mean: Mean,
    covariance: PastCovariance,
    max_entries: int = MAX_MATRIX_ENTRIES,
) -> Past:
    """The past at regular steps, newest first, from observations at any times.

    An observation older than the past counts as one at its oldest step, with an error variance
    that grows with every further step.

    Args:
        values: observations, oldest first.
        observed: which of them exist.
        lag: their times in steps, 0 for the issue time; one row for all windows or one each.
        mean: m.
        covariance: C.
        max_entries: of the systems that are solved together.
    """
    batch, _, nodes, channels = values.shape
    past = len(mean) // channels
    age = (-lag).to(covariance).expand(batch, -1)
    older, age = (age - (past - 1)).clamp(min=0), age.clamp(max=past - 1)
    cubic = between_leads(age, past - 1)
    select = torch.einsum("bil,cd->bicld", cubic, _identity(covariance, channels))
    select = select.flatten(3).flatten(1, 2)  # H: batch (input channel) (lag channel)
    blur = (age % 1 * (1 - age % 1) * 4).square()  # none at regular steps
    error = blur[..., None] * _interpolation_error(covariance, channels)
    error = (error + older[..., None] * _oldest_step(covariance, channels)).flatten(1)  # R
    cross = select @ covariance
    among = cross @ select.transpose(1, 2) + torch.diag_embed(error + 1e-12 * covariance[0, 0])
    rows = values.transpose(1, 2).flatten(2).double() - (select @ mean)[:, None]
    present = observed.transpose(1, 2).flatten(2)
    parts = []
    for b in range(batch):
        chunk = max(1, max_entries // among[b].numel())
        for some in torch.arange(nodes, device=rows.device).split(chunk):
            mask = present[b, some]
            if mask.device.type == "cpu" and bool((mask == mask[:1]).all()):  # e.g. a lost frame
                root = _masked_root(among[b : b + 1], mask[:1])[0]
                weight = torch.cholesky_solve((rows[b, some] * mask).T, root).T
            else:
                root = _masked_root(among[b].expand(len(some), -1, -1), mask)
                weight = torch.cholesky_solve((rows[b, some] * mask)[..., None], root)[..., 0]
            parts.append((weight * mask) @ cross[b])
    result = torch.cat(parts).unflatten(0, (batch, nodes)) + mean
    return result.unflatten(2, (past, channels)).transpose(1, 2).to(values.dtype)


def _interpolation_error(covariance: PastCovariance, channels: int) -> Float64[Tensor, " channel"]:
    """The variance of the error of cubic interpolation half a step from the regular steps."""
    each = _by_channel(covariance, channels)
    fitting = [kernel for kernel in RESIDUAL_FILTERS if len(kernel) <= len(each)]
    if not fitting:  # too short for an estimate
        return each.diagonal(dim1=0, dim2=1).mean(-1)
    kernel = to_device(fitting[0], covariance.device)
    width = len(kernel)
    windows = [each[i : i + width, i : i + width] for i in range(len(each) - width + 1)]
    variances = [torch.einsum("i,ijc,j->c", kernel, window, kernel) for window in windows]
    return HALF_STEP_SHARE * torch.stack(variances).mean(0)


def _oldest_step(covariance: PastCovariance, channels: int) -> Float64[Tensor, " channel"]:
    """The variance of the change between the two oldest steps."""
    each = _by_channel(covariance, channels)[-2:, -2:]
    return each[-1, -1] if len(each) < 2 else each[0, 0] + each[1, 1] - each[0, 1] - each[1, 0]


def _by_channel(covariance: PastCovariance, channels: int) -> Float64[Tensor, "lag lag channel"]:
    """The covariances of each channel with itself."""
    pairs = covariance.unflatten(0, (-1, channels)).unflatten(2, (-1, channels))
    return pairs.diagonal(dim1=1, dim2=3)


def _masked_root(
    among: Float64[Tensor, "row some some"], chosen: Bool[Tensor, "row some"]
) -> Float64[Tensor, "row some some"]:
    """The Cholesky root of the chosen rows and columns; the others form an identity."""
    mask = chosen.to(among.dtype)
    among = among * mask[:, :, None] * mask[:, None] + torch.diag_embed(1 - mask)
    return torch.linalg.cholesky_ex(among).L


def _identity(like: Tensor, size: int) -> Float64[Tensor, "size size"]:
    return torch.eye(size, dtype=like.dtype, device=like.device)
