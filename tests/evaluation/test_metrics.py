"""Metrics equal their definitions, in degenerate cases too; masked values have no influence."""

import json
import math

import numpy as np
import pytest
import torch

from stonet.errors import DataError, StonetError, UsageError
from stonet.evaluation.metrics import METRICS, Statistics, deviation, find

LEADS, CHANNELS = 4, 3


def draw(seed=0, batch=6, dtype=torch.float64):
    """Random prediction, truth (a fifth of it exactly zero) and mask."""
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, LEADS, 5, CHANNELS)
    prediction, truth = torch.randn(2, *shape, generator=generator, dtype=dtype) + 0.3
    truth[torch.rand(shape, generator=generator) < 0.2] = 0.0
    return prediction, truth, torch.rand(shape, generator=generator) < 0.6


def score(prediction, truth, mask):
    statistics = Statistics(prediction.shape[1], prediction.shape[3])
    statistics.add(prediction, truth, mask)
    return statistics


def table(statistics):
    return statistics.records("d", "m", "seen", tuple("abcdef"[: statistics.sums.shape[2]]), 0)


def definition(metric, prediction, truth, mask):
    """The metric of the observed values, by its definition."""
    p, y = prediction.numpy()[mask.numpy()], truth.numpy()[mask.numpy()]
    if metric == "mape":
        p, y = p[y != 0], y[y != 0]
        return 100 * np.mean(np.abs(p - y) / np.abs(y))
    if metric == "rmse":
        return np.sqrt(np.mean((p - y) ** 2))
    return np.mean(np.abs(p - y)) if metric == "mae" else np.mean(p - y)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("lead", [None, 0, LEADS - 1])
@pytest.mark.parametrize("channel", [None, 1])
def test_a_metric_equals_its_definition_on_observed_values(metric, lead, channel):
    prediction, truth, mask = draw()
    part = (
        slice(None),
        slice(None) if lead is None else slice(lead, lead + 1),
        slice(None),
        slice(None) if channel is None else slice(channel, channel + 1),
    )
    expected = definition(metric, prediction[part], truth[part], mask[part])
    got = score(prediction, truth, mask).value(metric, lead, channel)
    assert got == pytest.approx(expected, rel=1e-12)


def test_known_numbers():
    prediction = torch.tensor([1.0, 5.0, 2.0, 9.0]).reshape(1, 1, 4, 1)
    truth = torch.tensor([2.0, 1.0, 0.0, 4.0]).reshape(1, 1, 4, 1)
    mask = torch.tensor([True, True, True, False]).reshape(1, 1, 4, 1)
    statistics = score(prediction, truth, mask)  # errors -1, 4, 2; relative 1/2, 4
    assert statistics.value("mae") == pytest.approx(7 / 3)
    assert statistics.value("rmse") == pytest.approx(math.sqrt(7))
    assert statistics.value("bias") == pytest.approx(5 / 3)
    assert statistics.value("mape") == pytest.approx(225)


def test_a_perfect_forecast_scores_zero():
    _, truth, mask = draw()
    assert {record["value"] for record in table(score(truth, truth, mask))} == {0.0}


@pytest.mark.parametrize("offset", [0.75, -0.75])
def test_mae_rmse_and_bias_of_a_constant_offset_are_its_size(offset):
    _, truth, mask = draw()
    statistics = score(truth + offset, truth, mask)
    assert statistics.value("bias") == pytest.approx(offset, rel=1e-12)
    assert statistics.value("mae") == pytest.approx(abs(offset), rel=1e-12)
    assert statistics.value("rmse") == pytest.approx(abs(offset), rel=1e-12)


def test_masking_a_node_equals_leaving_it_out():
    prediction, truth, mask = draw()
    masked = mask.clone()
    masked[:, :, 2] = False
    rest = [0, 1, 3, 4]
    left_out = score(prediction[:, :, rest], truth[:, :, rest], mask[:, :, rest])
    for a, b in zip(table(score(prediction, truth, masked)), table(left_out), strict=True):
        assert a | {"value": 0} == b | {"value": 0}
        assert a["value"] == pytest.approx(b["value"], rel=1e-12)


@pytest.mark.parametrize("sizes", [[6], [1] * 6, [2, 4], [3, 1, 2]])
def test_metrics_do_not_depend_on_the_split_into_batches(sizes):
    tensors = draw()
    parts = Statistics(LEADS, CHANNELS)
    for batch in zip(*(tensor.split(sizes) for tensor in tensors), strict=True):
        parts.add(*batch)
    expected = table(score(*tensors))
    values = [record["value"] for record in table(parts)]
    assert values == pytest.approx([record["value"] for record in expected], rel=1e-12)


@pytest.mark.parametrize("junk", [1e30, float("nan"), float("inf"), -float("inf")])
def test_masked_values_have_no_influence(junk):
    prediction, truth, mask = draw(dtype=torch.float32)
    clean = score(prediction, truth, mask)
    for p, y in ((junk, 0.0), (0.0, junk), (junk, junk)):
        dirty = score(torch.where(mask, prediction, p), torch.where(mask, truth, y), mask)
        assert torch.equal(dirty.sums, clean.sums)
        assert torch.equal(dirty.counts, clean.counts)


def test_zero_targets_are_left_out_of_the_mape_only():
    prediction, truth, mask = draw()
    statistics, nonzero = (
        score(prediction, truth, mask),
        score(prediction, truth, mask & (truth != 0)),
    )
    assert statistics.value("mape") == nonzero.value("mape")
    for metric in ("mae", "rmse", "bias"):
        assert statistics.value(metric) != nonzero.value(metric)
    zeros = score(prediction, torch.zeros_like(truth), mask)
    assert math.isnan(zeros.value("mape")) and zeros.value("mae") > 0


def test_half_precision_is_summed_in_double():
    """A float16 sum of 10^6 errors of 0.1 would saturate."""
    error = torch.full((1, 1, 1_000_000, 1), 0.1, dtype=torch.float16)
    statistics = score(error, torch.zeros_like(error), torch.ones_like(error, dtype=torch.bool))
    for metric in ("mae", "rmse", "bias"):
        assert statistics.value(metric) == pytest.approx(float(error[0, 0, 0, 0]), rel=1e-12)


def test_nothing_observed_gives_nan_and_none():
    prediction, truth, mask = draw()
    mask[:, 1] = False
    statistics = score(prediction, truth, mask)
    assert math.isnan(statistics.value("mae", lead=1))
    assert math.isfinite(statistics.value("mae"))
    records = table(statistics)
    assert all((record["value"] is None) == (record["lead"] == 2) for record in records)
    assert {r["value"] for r in table(score(prediction, truth, mask & False))} == {None}
    assert {r["value"] for r in table(Statistics(LEADS, CHANNELS))} == {None}


def test_records_are_tidy_json():
    statistics = score(*draw())
    records = statistics.records("era5", "stonet", "unseen-no-history", ("u", "v", "t"), seed=3)
    assert json.loads(json.dumps(records, allow_nan=False)) == records
    keys = {"dataset", "model", "points", "channel", "lead", "metric", "value", "seed"}
    assert all(set(record) == keys for record in records)
    seen = {(r["channel"], r["lead"], r["metric"]) for r in records}
    assert len(seen) == len(records) == (CHANNELS + 1) * (LEADS + 1) * len(METRICS)
    assert find(records, channel="v", lead=2, metric="rmse") == statistics.value("rmse", 1, 1)
    assert find(records, channel="all", lead="all", metric="bias") == statistics.value("bias")


def test_a_single_channel_has_no_records_of_all():
    prediction, truth, mask = (tensor[..., :1] for tensor in draw())
    assert {r["channel"] for r in table(score(prediction, truth, mask))} == {"a"}


def test_find_refuses_no_or_several_matches():
    records = table(score(*draw()))
    with pytest.raises(UsageError, match=r"5 records meet .* They differ in: lead\."):
        find(records, channel="a", metric="mae")
    with pytest.raises(UsageError, match=r"0 records .* There are: channel a, all, b, c"):
        find(records, channel="x")
    assert math.isnan(find(table(Statistics(1, 1)), lead=1, metric="mae"))


def test_deviation_equals_the_paper_s_formula():
    assert deviation(2.0, 2.5) == 25.0
    assert deviation(2.0, 1.0) == -50.0
    assert math.isnan(deviation(0.0, 1.0))


def test_a_non_finite_forecast_is_an_error():
    prediction, truth, mask = draw()
    prediction[0, 0, 0, 0], mask[0, 0, 0, 0] = float("nan"), True
    statistics = Statistics(LEADS, CHANNELS)
    with pytest.raises(StonetError, match=r"1 of .* no finite error"):
        statistics.add(prediction, truth, mask)
    assert not statistics.counts.any()


def test_wrong_shapes_and_names_are_refused():
    statistics = Statistics(LEADS + 1, CHANNELS)
    with pytest.raises(DataError, match=r"expected \(batch, 5, node, 3\)"):
        statistics.add(*draw())
    with pytest.raises(DataError, match="2 channel names for 3"):
        statistics.records("d", "m", "seen", ("a", "b"), 0)
    with pytest.raises(UsageError, match="Did you mean 'mae'"):
        statistics.value("maee")
