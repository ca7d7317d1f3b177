"""Between odd times and regular ones: leads between whole steps; for baselines, pasts at them."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from stonet.data.batch import Batch
from stonet.data.time_spec import TimeSpec


def on_regular_lags(
    batch: Batch, time_spec: TimeSpec
) -> tuple[Float[Tensor, "batch lag node channel"], Bool[Tensor, "batch node channel"] | None]:
    """Every node's past at the regular lags 0, 1, ..., gaps filled in time, linearly.

    And which nodes have a past at all, by channel (None: all of them).
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
    """Linear in time between the observed values around each regular lag; constant beyond them."""
    past = values.shape[1]
    number = torch.arange(past, device=values.device)[None, :, None, None]
    before = torch.where(observed, number, -1).cummax(1).values  # last observed up to each input
    after = torch.where(observed, number, past).flip(1).cummin(1).values.flip(1)
    place = torch.searchsorted(lag.contiguous() + 1e-4, regular.expand(len(lag), -1).contiguous())
    low = _pick(before, (place - 1).clamp(min=0), place[..., None, None] > 0, -1)
    high = _pick(after, place.clamp(max=past - 1), place[..., None, None] < past, past)
    low, high = torch.where(low < 0, high, low), torch.where(high >= past, low, high)
    low, high = low.clamp(0, past - 1), high.clamp(0, past - 1)
    times = lag[:, :, None, None].expand_as(values)
    left, right = times.gather(1, low), times.gather(1, high)
    gap = torch.where(right > left, right - left, 1.0)
    t = ((regular[None, :, None, None] - left) / gap).clamp(0, 1)
    return values.gather(1, low) * (1 - t) + values.gather(1, high) * t


def _pick(table: Tensor, index: Tensor, valid: Tensor, otherwise: int) -> Tensor:
    """table[b, index[b, l], node, channel], or `otherwise` where there is no such input."""
    expanded = index[..., None, None].expand(-1, -1, *table.shape[2:])
    return torch.where(valid, table.gather(1, expanded), otherwise)


def on_leads(lead: Float[Tensor, "rows future"]) -> Bool[Tensor, "rows future"]:
    """Whether the k-th target is k steps ahead, within half a step: not after a missing frame."""
    return (lead - torch.arange(1, lead.shape[1] + 1, device=lead.device)).abs() < 0.5


def between_leads(
    lead: Float[Tensor, "rows future"], last: int
) -> Float[Tensor, "rows future knot"]:
    """Weights of the fitted leads 0..horizon: cubic between four of them, linear beyond."""
    knots = torch.arange(last + 1, device=lead.device, dtype=lead.dtype)
    if last < 3:
        return _linear(lead, knots)
    first = (lead.floor() - 1).clamp(0, last - 3)
    t = (lead - first)[..., None]  # position among the four knots 0, 1, 2, 3
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
    return torch.where((lead <= last)[..., None], inside, _linear(lead, knots))


def _linear(
    lead: Float[Tensor, "rows future"], knots: Float[Tensor, " knot"]
) -> Float[Tensor, "rows future knot"]:
    """Hat functions; the outermost two continue as straight lines."""
    first = lead.floor().clamp(0, len(knots) - 2)
    t = (lead - first)[..., None]
    here = (knots == first[..., None]).to(lead.dtype)
    return here * (1 - t) + here.roll(1, -1) * t
