"""Interpolation in time: leads between the trained leads, and inputs at regular lags.

`between_leads` serves the models, `on_regular_lags` the baselines, which need regular inputs.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from stonet.data.batch import Batch
from stonet.data.time_spec import TimeSpec


def on_regular_lags(
    batch: Batch, time_spec: TimeSpec
) -> tuple[Float[Tensor, "batch lag node channel"], Bool[Tensor, "batch node channel"] | None]:
    """The past of every node at the lags 0, 1, ..., with gaps interpolated linearly in time.

    Args:
        batch: windows at regular or irregular times.
        time_spec: step and number of lags.

    Returns:
        The values, and whether a node has any value, by channel (None: every node has).
    """
    values = batch.frames[batch.past]
    regular = torch.arange(1 - time_spec.past, 1, device=values.device, dtype=values.dtype)
    if batch.observed is None:
        if batch.regular(time_spec.past):
            return values.flip(1), None
        observed = torch.ones_like(values, dtype=torch.bool)
    else:
        observed = batch.observed[batch.past]
    lag = batch.lag.to(values.dtype).expand(len(values), -1)
    filled = interpolate(values, observed, lag, regular.flip(0))
    if not batch.missing_pattern.some:
        return filled, None
    return filled * batch.known[:, None], batch.known


def interpolate(
    values: Float[Tensor, "batch past node channel"],
    observed: Bool[Tensor, "batch past node channel"],
    lag: Float[Tensor, "batch past"],
    regular: Float[Tensor, " lag"],
) -> Float[Tensor, "batch lag node channel"]:
    """Linear interpolation in time at the regular lags, constant extrapolation.

    Args:
        values: inputs at any lags.
        observed: the mask of the values.
        lag: of the inputs, increasing.
        regular: lags of the result.
    """
    past = values.shape[1]
    number = torch.arange(past, device=values.device)[None, :, None, None]
    before = torch.where(observed, number, -1).cummax(1).values  # last observed up to each input
    after = torch.where(observed, number, past).flip(1).cummin(1).values.flip(1)
    index = torch.searchsorted(lag.contiguous() + 1e-4, regular.expand(len(lag), -1).contiguous())
    low = _pick(before, (index - 1).clamp(min=0), index[..., None, None] > 0, -1)
    high = _pick(after, index.clamp(max=past - 1), index[..., None, None] < past, past)
    low, high = torch.where(low < 0, high, low), torch.where(high >= past, low, high)
    low, high = low.clamp(0, past - 1), high.clamp(0, past - 1)
    times = lag[:, :, None, None].expand_as(values)
    left, right = times.gather(1, low), times.gather(1, high)
    gap = torch.where(right > left, right - left, 1.0)
    t = ((regular[None, :, None, None] - left) / gap).clamp(0, 1)
    return values.gather(1, low) * (1 - t) + values.gather(1, high) * t


def _pick(table: Tensor, index: Tensor, valid: Tensor, otherwise: int) -> Tensor:
    """table[b, index[b, l], node, channel], or `otherwise` where the index is not valid."""
    expanded = index[..., None, None].expand(-1, -1, *table.shape[2:])
    return torch.where(valid, table.gather(1, expanded), otherwise)


def on_leads(lead: Float[Tensor, "rows future"]) -> Bool[Tensor, "rows future"]:
    """Whether the k-th target is k steps ahead, within half a step; false after a missing frame.

    Args:
        lead: of the targets, in steps.
    """
    return (lead - torch.arange(1, lead.shape[1] + 1, device=lead.device)).abs() < 0.5


def between_leads(
    lead: Float[Tensor, "rows future"], last: int
) -> Float[Tensor, "rows future trained"]:
    """Interpolation weights of the trained leads 0..last: cubic inside, linear beyond.

    Args:
        lead: requested leads in steps.
        last: the longest trained lead.
    """
    trained = torch.arange(last + 1, device=lead.device, dtype=lead.dtype)
    if last < 3:
        return _linear(lead, trained)
    first = (lead.floor() - 1).clamp(0, last - 3)
    t = (lead - first)[..., None]  # position among four leads 0, 1, 2, 3
    cubic = torch.cat(
        [
            -(t - 1) * (t - 2) * (t - 3) / 6,
            t * (t - 2) * (t - 3) / 2,
            -t * (t - 1) * (t - 3) / 2,
            t * (t - 1) * (t - 2) / 6,
        ],
        dim=-1,
    )
    columns = first[..., None].long() + torch.arange(4, device=lead.device)
    inside = torch.zeros(*lead.shape, last + 1, device=lead.device, dtype=lead.dtype)
    inside.scatter_(-1, columns, cubic)
    return torch.where((lead <= last)[..., None], inside, _linear(lead, trained))


def _linear(
    lead: Float[Tensor, "rows future"], trained: Float[Tensor, " trained"]
) -> Float[Tensor, "rows future trained"]:
    """Piecewise linear weights; the first and the last segment are extrapolated."""
    first = lead.floor().clamp(0, len(trained) - 2)
    t = (lead - first)[..., None]
    here = (trained == first[..., None]).to(lead.dtype)
    return here * (1 - t) + here.roll(1, -1) * t
