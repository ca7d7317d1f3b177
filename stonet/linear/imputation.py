r"""Pasts at whole steps: gaps filled, and odd times moved, as a point's other values suggest.

    E[u | y] = m + C H' (H C H' + R)^-1 (y - H m),     y = H u + errors of variance R

u is a point's past at whole steps (all lags and channels), m and C its mean and covariance; y is
what was observed of it. At whole steps H picks what is there, and R is 0; between them H is cubic
interpolation, R its error. With m and C of a random walk, from which one starts, gaps are filled
linearly; the base learns better ones (linear_fit.py). Each node is filled from its own values only.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from stonet.data.resampling import between_leads
from stonet.system.devices import to_device

NUMBERS = 2**22  # of the matrices that are solved at a time
ANYWHERE = 1e6  # variance of where a random walk begins, in its steps
# How a value differs from a cubic through every other one around it; in short pasts, from a line
ACROSS = (
    torch.tensor([-1.0, 0, 9, -16, 9, 0, -1], dtype=torch.float64) / 16,
    torch.tensor([1.0, -2, 1], dtype=torch.float64) / 2,
)
WITHIN = 0.25  # variance of the error half a step away, of that across two steps
Past = Float[Tensor, "batch lag node channel"]
Seen = Bool[Tensor, "batch lag node channel"]
Mean = Float64[Tensor, " both"]  # lag, then channel
PastCovariance = Float64[Tensor, "both both"]


def random_walk(past: int, channels: int) -> PastCovariance:
    """Of a past, newest first, that goes any way from one time to the next."""
    steps = torch.arange(past, 0, -1, dtype=torch.float64)
    walk = ANYWHERE + torch.minimum(steps[:, None], steps)
    return torch.kron(walk, torch.eye(channels, dtype=torch.float64))


def errors(covariance: PastCovariance) -> Float64[Tensor, " both"]:
    """The variance of what is filled, where all other values are there."""
    return 1 / torch.linalg.inv(covariance).diagonal()


def fill_gaps(values: Past, seen: Seen, mean: Mean, covariance: PastCovariance) -> Past:
    """The same with every gap filled, but for channels of which a node has no value at all."""
    shape, known = (values.shape[1], values.shape[3]), seen.any(1, keepdim=True)
    rows = values.transpose(1, 2).flatten(2)  # batch node (lag channel)
    rows = rows.to(torch.float64, copy=True)
    there = seen.transpose(1, 2).flatten(2)
    torn = (seen != known).transpose(1, 2).flatten(2).any(-1)
    if values.device.type == "cpu":
        rows[torn] = _filled(rows[torn], there[torn], mean, covariance)
    else:  # a GPU is not asked who has gaps
        rows = _filled(rows.flatten(0, 1), there.flatten(0, 1), mean, covariance).view_as(rows)
    return rows.unflatten(2, shape).transpose(1, 2).to(values.dtype) * known


def _filled(
    rows: Float64[Tensor, "row both"],
    there: Bool[Tensor, "row both"],
    mean: Mean,
    covariance: PastCovariance,
) -> Float64[Tensor, "row both"]:
    """The missing values that are expected; rows that miss about as many are solved together."""
    root = torch.linalg.cholesky_ex(covariance).L  # plain `cholesky` would make a GPU wait
    whiten = torch.linalg.solve_triangular(root, _one(covariance, len(mean)), upper=False).T
    away, size = (rows - mean) * there, len(mean)
    if rows.device.type != "cpu":
        most = max(1, NUMBERS // size**2)
        parts = zip(away.split(most), there.split(most), strict=True)
        return torch.cat([_expected(*part, size, whiten) for part in parts]) + mean
    missing, most = (~there).sum(-1), 1
    while most < 2 * size:
        alike = torch.nonzero((missing <= most) & (missing > most // 2))[:, 0]
        for some in alike.split(max(1, NUMBERS // (most * size))):
            away[some] = _expected(away[some], there[some], min(most, size), whiten)
        most *= 2
    return away + mean


def _expected(
    away: Float64[Tensor, "row both"],
    there: Bool[Tensor, "row both"],
    most: int,
    whiten: Float64[Tensor, "both both"],
) -> Float64[Tensor, "row both"]:
    """The missing u that make |L^-1 (u - m)| least, C = L L'; at most so many are missing.

    By normal equations, solved again for what rounding has left: that needs as many equations as
    values are missing, and loses far fewer digits than C^-1 would.
    """
    seat = torch.argsort(there.byte(), dim=-1, stable=True)[:, :most]
    gone = ~there.gather(1, seat)
    free = whiten[seat] * gone[..., None]
    left = (away @ whiten)[..., None]
    root = _root(free @ free.transpose(1, 2), gone)
    for _ in range(2):
        found = torch.cholesky_solve(free @ left, root) * gone[..., None]
        left = left - free.transpose(1, 2) @ found
        away = away.scatter_add(1, seat, -found[..., 0])
    return away


def resample(
    values: Float[Tensor, "batch past node channel"],
    seen: Bool[Tensor, "batch past node channel"],
    lag: Float[Tensor, "rows past"],
    mean: Mean,
    covariance: PastCovariance,
) -> Past:
    """Observed at these times, a past at whole steps.

    What is older counts as the oldest, with the error of as many steps.
    """
    batch, _, nodes, channels = values.shape
    past = len(mean) // channels
    ago = (-lag).to(covariance).expand(batch, -1)
    older, ago = (ago - (past - 1)).clamp(min=0), ago.clamp(max=past - 1)
    cubic = between_leads(ago, past - 1)  # H
    picks = torch.einsum("bil,cd->bicld", cubic, _one(covariance, channels))
    picks = picks.flatten(3).flatten(1, 2)  # batch (input channel) (lag channel)
    blur = (ago % 1 * (1 - ago % 1) * 4).square()  # none at whole steps
    error = blur[..., None] * _between(covariance, channels)
    error = (error + older[..., None] * _step(covariance, channels)).flatten(1)  # R
    told = picks @ covariance
    among = told @ picks.transpose(1, 2) + torch.diag_embed(error + 1e-12 * covariance[0, 0])
    rows = values.transpose(1, 2).flatten(2).double() - (picks @ mean)[:, None]
    there = seen.transpose(1, 2).flatten(2)
    parts = []
    for b in range(batch):
        for some in torch.arange(nodes, device=rows.device).split(
            max(1, NUMBERS // among[b].numel())
        ):
            mine = there[b, some]
            if mine.device.type == "cpu" and bool((mine == mine[:1]).all()):  # as a lost frame does
                root = _root(among[b : b + 1], mine[:1])[0]
                weight = torch.cholesky_solve((rows[b, some] * mine).T, root).T
            else:
                root = _root(among[b].expand(len(some), -1, -1), mine)
                weight = torch.cholesky_solve((rows[b, some] * mine)[..., None], root)[..., 0]
            parts.append((weight * mine) @ told[b])
    moved = torch.cat(parts).unflatten(0, (batch, nodes)) + mean
    return moved.unflatten(2, (past, channels)).transpose(1, 2).to(values.dtype)


def _between(covariance: PastCovariance, channels: int) -> Float64[Tensor, " channel"]:
    """The variance of the error of a cubic half a step away from what it goes through."""
    each = _each(covariance, channels)
    fitting = [across for across in ACROSS if len(across) <= len(each)]
    if not fitting:  # too short to tell
        return each.diagonal(dim1=0, dim2=1).mean(-1)
    across = to_device(fitting[0], covariance.device)
    width = len(across)
    windows = [each[i : i + width, i : i + width] for i in range(len(each) - width + 1)]
    found = [torch.einsum("i,ijc,j->c", across, one, across) for one in windows]
    return WITHIN * torch.stack(found).mean(0)


def _step(covariance: PastCovariance, channels: int) -> Float64[Tensor, " channel"]:
    """The variance of the step after the oldest time."""
    each = _each(covariance, channels)[-2:, -2:]
    return each[-1, -1] if len(each) < 2 else each[0, 0] + each[1, 1] - each[0, 1] - each[1, 0]


def _each(covariance: PastCovariance, channels: int) -> Float64[Tensor, "lag lag channel"]:
    """Of each channel with itself."""
    by_channel = covariance.unflatten(0, (-1, channels)).unflatten(2, (-1, channels))
    return by_channel.diagonal(dim1=1, dim2=3)


def _root(
    among: Float64[Tensor, "row some some"], chosen: Bool[Tensor, "row some"]
) -> Float64[Tensor, "row some some"]:
    """The triangular root for those that are chosen; the others are left alone."""
    mask = chosen.to(among.dtype)
    among = among * mask[:, :, None] * mask[:, None] + torch.diag_embed(1 - mask)
    return torch.linalg.cholesky_ex(among).L


def _one(like: Tensor, size: int) -> Float64[Tensor, "size size"]:
    return torch.eye(size, dtype=like.dtype, device=like.device)
