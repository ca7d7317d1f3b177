r"""Anchors: the simple forecasts that the network corrects.

    last    u(x, t0)                                the newest value
    daily   u(x, t0 + lead - n days)                the newest value at the target's time of day
    linear  the closed-form linear forecast         `stonet.linear.regression`

The first two are read from the history of a point, at whole leads, and are linear between them.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from stonet.data.durations import DAY
from stonet.data.time_spec import TimeSpec

Anchor = Literal["last", "daily", "linear"]


def possible_anchors(time_spec: TimeSpec) -> tuple[Anchor, ...]:
    """The anchors that the data allow: a daily value needs a past of one day."""
    day = DAY / time_spec.step
    daily = time_spec.daily and time_spec.past >= math.ceil(day)
    return ("last", "daily", "linear") if daily else ("last", "linear")


def anchor_at_leads(
    history: Float[Tensor, "batch lag node channel"], anchor: Anchor, time_spec: TimeSpec
) -> Float[Tensor, "batch knot node channel"]:
    """The anchor at the leads 0, 1, ..., horizon; a single row if it is the same for all.

    Args:
        history: of the nodes, newest first.
        anchor: "last" or "daily".
        time_spec: step, past and horizon of the data.
    """
    if anchor != "daily":
        return history[:, :1]
    day = DAY / time_spec.step
    lead = torch.arange(time_spec.horizon + 1, dtype=torch.float64)
    age = (day * torch.ceil(lead / day - 1e-6) - lead).clamp(0, time_spec.past - 1)
    lag = torch.arange(time_spec.past, dtype=torch.float64)
    share = (1 - (age[:, None] - lag).abs()).clamp(min=0)
    return torch.einsum("kl,blnc->bknc", share.to(history), history)


def between_knots(
    at_leads: Float[Tensor, "query batch_or_1 knot channel"], lead: Float[Tensor, "rows future"]
) -> Float[Tensor, "query batch future channel"]:
    """Values at any lead from those at the leads 0, 1, ..., horizon: linear, constant beyond.

    Args:
        at_leads: for every query and window; or a single knot, the same for all leads.
        lead: in steps; one row for all windows or one each.
    """
    knots = at_leads.shape[-2]
    if knots == 1:
        return at_leads.expand(-1, -1, lead.shape[1], -1)
    knot = torch.arange(knots, device=lead.device, dtype=lead.dtype)
    share = (1 - (lead.clamp(0, knots - 1)[..., None] - knot).abs()).clamp(min=0)
    share = share.to(at_leads.dtype)
    if len(share) == 1:
        return share[0] @ at_leads
    return torch.einsum("bfk,qbkc->qbfc", share, at_leads)
