"""The anchor: newest value, daily value and their blend by least squares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from stonet.data.durations import SECOND
from stonet.data.time_spec import TimeSpec
from stonet.models.anchor import BlendMoments, between_knots, blend_terms, has_daily_value

HOUR = 3600 * SECOND
DAILY = TimeSpec(step=HOUR, past=24, horizon=30, calendar=True)
PLAIN = TimeSpec(step=HOUR, past=6, horizon=4, calendar=False)
F64 = torch.float64


def histories(time_spec: TimeSpec, batch: int = 5, nodes: int = 7, channels: int = 2):
    return torch.randn(batch, time_spec.past, nodes, channels, dtype=F64)


def test_the_daily_value_is_the_newest_one_at_the_targets_hour() -> None:
    """u(t0 + lead - n days), with the smallest n that makes it known."""
    history = histories(DAILY)
    newest, daily, one = blend_terms(history, DAILY)
    assert (one == 1).all() and newest.shape == (5, 31, 7, 2)
    for lead in range(31):
        assert torch.equal(newest[:, lead], history[:, 0])
        torch.testing.assert_close(daily[:, lead], history[:, -lead % 24])


@pytest.mark.parametrize("step", [HOUR // 2, 3 * HOUR, 5 * HOUR // 3])
def test_a_daily_cycle_is_repeated_whatever_the_step(step: int) -> None:
    """Between steps it is interpolated: exact for a value that is linear in time there."""
    past = -(-24 * HOUR // step) + 1
    time_spec = replace(DAILY, step=step, past=past, horizon=past)
    hours = -torch.arange(past, dtype=F64)[:, None, None] * step / HOUR
    daily = blend_terms(hours[None], time_spec)[1][0, :, 0, 0]
    for lead in range(past + 1):
        age = -(lead * step / HOUR) % 24
        assert daily[lead] == pytest.approx(-age, abs=1e-4) or age > 24 - 1e-4


def test_without_a_whole_day_of_past_there_is_no_daily_value() -> None:
    short = replace(DAILY, past=23)
    assert has_daily_value(DAILY) and not has_daily_value(short) and not has_daily_value(PLAIN)
    for time_spec in (short, PLAIN):
        assert not blend_terms(histories(time_spec), time_spec)[1].any()


@pytest.mark.parametrize("time_spec", [DAILY, PLAIN], ids=["daily", "plain"])
def test_the_coefficients_are_those_of_least_squares(time_spec: TimeSpec) -> None:
    """By lead and channel, over the observed targets; at lead 0 the newest value itself."""
    moments, rows = BlendMoments(time_spec.horizon, 2), []
    for seed in range(3):
        torch.manual_seed(seed)
        terms = blend_terms(histories(time_spec, batch=12), time_spec)
        target = torch.randn(12, time_spec.horizon, 7, 2, dtype=F64)
        mask = torch.rand(target.shape) < 0.7
        target = torch.where(mask, target + 0.8 * terms[0][:, 1:], torch.nan)
        moments.add(terms, target.nan_to_num(1e6), mask.double())
        rows.append((terms, target))
    found = moments.solve()
    assert found.shape == (time_spec.horizon + 1, 2, 3)
    assert torch.equal(found[0], torch.tensor([[1.0, 0.0, 0.0]] * 2, dtype=F64))
    used = [0, 1, 2] if time_spec is DAILY else [0, 2]
    for lead in (1, 2, time_spec.horizon):
        for c in range(2):
            x = np.concatenate([t[:, :, lead, :, c].flatten(1).T for t, _ in rows])[:, used]
            y = np.concatenate([target[:, lead - 1, :, c].flatten() for _, target in rows])
            there = np.isfinite(y)
            if time_spec is DAILY and lead == 24:
                continue  # newest and daily value are one
            expected = np.linalg.lstsq(x[there], y[there], rcond=None)[0]
            np.testing.assert_allclose(found[lead, c, used], expected, atol=1e-6)
    assert time_spec is DAILY or not found[..., 1].any()


def test_values_between_leads_are_interpolated_and_constant_beyond() -> None:
    knots = torch.randn(4, 3, 6, 2, dtype=F64)  # leads 0 to 5
    lead = torch.tensor([[0.0, 0.25, 3.0, 4.5, 5.0, 9.0]], dtype=F64)
    found = between_knots(knots, lead)
    quarter, half = 0.75 * knots[:, :, 0] + 0.25 * knots[:, :, 1], knots[:, :, 4:].mean(2)
    expected = [knots[:, :, 0], quarter, knots[:, :, 3], half, knots[:, :, 5], knots[:, :, 5]]
    torch.testing.assert_close(found, torch.stack(expected, dim=2))
    each = between_knots(knots, lead.expand(3, -1) + torch.zeros(3, 1))
    torch.testing.assert_close(each, found)
    alone = between_knots(knots[:, :, :1], lead)
    assert torch.equal(alone, knots[:, :, :1].expand(-1, -1, 6, -1))
