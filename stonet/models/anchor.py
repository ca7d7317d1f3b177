r"""Anchors: the simple forecasts that the network corrects.

    last    u(x, t0)                                                    the newest value
    blend   alpha(lead) u(x, t0) + beta(lead) u(x, t0 + lead - n days) + gamma(lead)
    linear  the closed-form linear forecast                             `stonet.linear.regression`

The first two are read from the history of a point at whole leads. The coefficients of the blend
are fitted by least squares; without a daily cycle beta is zero, and the newest value is damped
towards the mean.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from stonet.data.durations import DAY
from stonet.data.time_spec import TimeSpec

Anchor = Literal["last", "blend", "linear"]
TERMS = 3  # of the blend: newest value, daily value, constant


def has_daily_value(time_spec: TimeSpec) -> bool:
    """Whether the past reaches back to the target's time of day.

    Args:
        time_spec: of the model.
    """
    return time_spec.daily and time_spec.past >= math.ceil(DAY / time_spec.step)


def blend_terms(
    history: Float[Tensor, "batch lag node channel"], time_spec: TimeSpec
) -> Float[Tensor, "term batch knot node channel"]:
    """Newest value, daily value (or 0) and 1, at the leads 0, 1, ..., horizon.

    Args:
        history: of the nodes, newest first.
        time_spec: step, past and horizon of the data.
    """
    knots = time_spec.horizon + 1
    newest = history[:, :1].expand(-1, knots, -1, -1)
    if not has_daily_value(time_spec):
        return torch.stack([newest, torch.zeros_like(newest), torch.ones_like(newest)])
    day = DAY / time_spec.step
    here, exact = history.device, torch.float64
    lead = torch.arange(knots, dtype=exact, device=here)
    age = (day * torch.ceil(lead / day - 1e-6) - lead).clamp(0, time_spec.past - 1)
    lag = torch.arange(time_spec.past, dtype=exact, device=here)
    share = (1 - (age[:, None] - lag).abs()).clamp(min=0)
    daily = torch.einsum("kl,blnc->bknc", share.to(history), history)
    return torch.stack([newest, daily, torch.ones_like(newest)])


class BlendMoments:
    """Sums for the least-squares coefficients of the blend, by lead and channel.

    Args:
        horizon: number of trained leads.
        channels: of the field.
    """

    def __init__(self, horizon: int, channels: int) -> None:
        self.xx = torch.zeros(horizon, channels, TERMS, TERMS, dtype=torch.float64)
        self.xy = torch.zeros(horizon, channels, TERMS, dtype=torch.float64)

    def add(
        self,
        terms: Float[Tensor, "term batch knot node channel"],
        target: Float[Tensor, "batch future node channel"],
        mask: Float[Tensor, "batch future node channel"],
    ) -> None:
        """Add some windows, at the nodes where the mask is 1.

        Args:
            terms: of the blend, at the leads 0, 1, ....
            target: values after the issue time.
            mask: of the target.
        """
        x, y, w = terms[:, :, 1:].double(), target.double(), mask.double()
        self.xx += torch.einsum("pbfnc,qbfnc,bfnc->fcpq", x, x, w)
        self.xy += torch.einsum("pbfnc,bfnc,bfnc->fcp", x, y, w)

    def solve(self) -> Float64[Tensor, "knot channel term"]:
        """The coefficients; at lead 0 the newest value itself."""
        size = self.xx.diagonal(dim1=-2, dim2=-1).amax(-1).clamp(min=1.0)
        ridge = 1e-9 * size[..., None, None] * torch.eye(TERMS, dtype=torch.float64)
        solved = torch.linalg.solve(self.xx + ridge, self.xy)
        first = torch.zeros_like(solved[:1])
        first[..., 0] = 1.0
        return torch.cat([first, solved])


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
