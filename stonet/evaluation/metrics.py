"""Metrics: functions of masked means of error statistics.

    MAE = mean |e|,  RMSE = √(mean e²),  bias = mean e,  MAPE = 100 mean |e| / |y|

with e = prediction - truth and y = truth. Statistics are summed over batches, and
the metric is taken last: the RMSE is the root of the mean of all squares, never a mean of roots.
Zero targets count in every metric but the MAPE, which is not defined there. All sums are in float64
and in the data's units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from stonet.errors import DataError, StonetError, UsageError, unknown_name

Record = dict[str, Any]  # keys: dataset, model, points, channel, lead, metric, value, seed
STATISTICS = ("absolute", "squared", "error", "relative")
POWERS = {"absolute": 1, "squared": 2, "error": 1, "relative": 0}  # of the unit
METRICS: dict[str, Callable[[Mapping[str, float]], float]] = {
    "mae": lambda mean: mean["absolute"],
    "rmse": lambda mean: math.sqrt(mean["squared"]),
    "mape": lambda mean: 100.0 * mean["relative"],
    "bias": lambda mean: mean["error"],
}


class Statistics:
    """Running sums and counts of each statistic, for each lead and channel.

    Args:
        leads: number of lead times.
        channels: number of channels.
        zero: targets of at most this size are left out of the MAPE.

    Example:
        >>> statistics = Statistics(leads=12, channels=1)
        >>> statistics.add(prediction, truth, mask)
        >>> statistics.value("rmse")
    """

    sums: Float64[Tensor, "statistic lead channel"]
    counts: Int64[Tensor, "statistic lead channel"]

    def __init__(
        self, leads: int, channels: int, zero: Float64[Tensor, " channel"] | float = 0.0
    ) -> None:
        self.zero = zero
        self.sums = torch.zeros(len(STATISTICS), leads, channels, dtype=torch.float64)
        self.counts = torch.zeros(len(STATISTICS), leads, channels, dtype=torch.int64)

    @torch.no_grad()
    def add(
        self,
        prediction: Float[Tensor, "batch future node channel"],
        truth: Float[Tensor, "batch future node channel"],
        mask: Bool[Tensor, "batch future node channel"],
    ) -> None:
        """Add the values where `mask` is True; other values have no influence.

        Args:
            prediction: in the data's units.
            truth: in the data's units.
            mask: where the truth was observed.

        Raises:
            DataError: if the shapes differ.
            StonetError: if an error is not finite.
        """
        self._check_shapes(prediction, truth, mask)
        error = torch.where(mask, prediction.double() - truth.double(), 0.0)
        target = torch.where(mask, truth.double(), 0.0).abs()
        nonzero = target > self.zero
        relative = torch.where(nonzero, error.abs() / torch.where(nonzero, target, 1.0), 0.0)
        values = torch.stack([error.abs(), error.square(), error, relative])
        sums = values.sum(dim=(1, 3)).cpu()  # (statistic, lead, channel)
        if not sums.isfinite().all():
            count = int((~values.isfinite()).any(dim=0).sum())
            raise StonetError(
                f"{count} of {int(mask.sum())} observed values have no finite error: the forecast "
                "(or the truth, if its mask is wrong) holds NaN or infinity. Has training diverged?"
            )
        self.sums += sums
        self.counts += torch.stack([mask, mask, mask, nonzero]).sum(dim=(1, 3)).cpu()

    def value(
        self,
        metric: str,
        lead: int | None = None,
        channel: int | None = None,
        scale: Sequence[float] | None = None,
    ) -> float:
        """One metric.

        Args:
            metric: "mae", "rmse", "mape" or "bias".
            lead: position, from 0 (None: over all leads).
            channel: position, from 0 (None: over all channels).
            scale: of each channel, by which errors are divided before they are averaged over
                channels; None: 1.

        Returns:
            the value in the data's units (MAPE: percent); NaN if nothing was observed.
        """
        if metric not in METRICS:
            raise unknown_name("metric", metric, METRICS)
        leads = slice(None) if lead is None else [lead]
        channels = slice(None) if channel is None else [channel]
        sums = self.sums
        if scale is not None:
            size = torch.tensor(scale, dtype=torch.float64)
            powers = torch.tensor([POWERS[name] for name in STATISTICS], dtype=torch.float64)
            sums = sums / size ** powers[:, None, None]
        sums = sums[:, leads][:, :, channels].sum(dim=(1, 2))
        counts = self.counts[:, leads][:, :, channels].sum(dim=(1, 2))
        return METRICS[metric](dict(zip(STATISTICS, (sums / counts).tolist(), strict=True)))

    def records(
        self,
        dataset: str,
        model: str,
        points: Literal["seen", "unseen", "unseen-no-history"],
        channels: Sequence[str],
        seed: int,
        scale: Sequence[float] | None = None,
    ) -> list[Record]:
        """All metrics as tidy records, for each channel and lead, and for "all" of them.

        Channels of several units have no common one: their "all" is the mean of errors divided by
        `scale`, the training standard deviations. Leads count from 1. `value` is None if nothing
        was observed, since JSON has no NaN.

        Args:
            dataset: name of the data.
            model: name of the model.
            points: which points were scored.
            channels: names of the channels.
            seed: of the training.
            scale: of each channel, for "all" channels; None: they have one unit.
        """
        num_leads, num_channels = self.sums.shape[1:]
        if len(channels) != num_channels:
            raise DataError(f"{len(channels)} channel names for {num_channels} channels.")
        names: dict[str, int | None] = {"all": None} if num_channels > 1 else {}
        names |= {name: i for i, name in enumerate(channels)}
        leads: dict[str | int, int | None] = {"all": None} | {i + 1: i for i in range(num_leads)}
        return [
            {
                "dataset": dataset,
                "model": model,
                "points": points,
                "channel": name,
                "lead": lead,
                "metric": metric,
                "value": None
                if math.isnan(
                    value := self.value(metric, row, column, scale if column is None else None)
                )
                else value,
                "seed": seed,
            }
            for name, column in names.items()
            for lead, row in leads.items()
            for metric in METRICS
        ]

    def _check_shapes(self, prediction: Tensor, truth: Tensor, mask: Tensor) -> None:
        """Refuse shapes that differ; some of them would broadcast."""
        leads, channels = self.sums.shape[1:]
        shapes = [tuple(tensor.shape) for tensor in (prediction, truth, mask)]
        batch, _, nodes, _ = shapes[0] if len(shapes[0]) == 4 else (-1,) * 4
        if any(shape != (batch, leads, nodes, channels) for shape in shapes):
            raise DataError(
                f"Prediction, truth and mask have shapes {', '.join(map(str, shapes))}; expected "
                f"(batch, {leads}, node, {channels}) of all three, meaning {leads} leads and "
                f"{channels} channels."
            )


def deviation(seen_mae: float, unseen_mae: float) -> float:
    """The paper's 100 (MAE_ind - MAE_tran) / MAE_tran, in percent; NaN if MAE_tran is 0.

    Args:
        seen_mae: MAE at seen points.
        unseen_mae: MAE at unseen points.
    """
    return 100.0 * (unseen_mae - seen_mae) / seen_mae if seen_mae else math.nan


def find(records: Sequence[Record], /, **conditions: object) -> float:
    """The value of the one record that meets all conditions; NaN if nothing was observed.

    Args:
        records: tidy scores.
        **conditions: values of some keys of a record.

    Raises:
        UsageError: if no record or several meet them.

    Example:
        >>> find(records, model="stonet", points="seen", channel="t2m", metric="mae", lead="all")
    """
    matches = [r for r in records if all(r[key] == value for key, value in conditions.items())]
    if len(matches) != 1:
        keys = ("dataset", "model", "points", "channel", "lead", "metric", "seed")
        differ = [key for key in keys if len({record[key] for record in matches}) > 1]
        remedy = (
            f"They differ in: {', '.join(differ)}." if matches else _choices(records, conditions)
        )
        raise UsageError(f"{len(matches)} records meet {conditions}; expected one. {remedy}")
    value = matches[0]["value"]
    return math.nan if value is None else float(value)


def _choices(records: Sequence[Record], conditions: Mapping[str, object]) -> str:
    """The values that the records have for the keys of the conditions."""
    values = {key: sorted({str(record[key]) for record in records}) for key in conditions}
    return "There are: " + "; ".join(f"{key} {', '.join(names)}" for key, names in values.items())
