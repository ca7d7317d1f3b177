"""Scores as pandas tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stonet.evaluation.metrics import METRICS, Record
from stonet.evaluation.probabilistic import INTERVAL_METRICS

if TYPE_CHECKING:
    import pandas as pd


def records_table(records: Sequence[Record]) -> pd.DataFrame:
    """Tidy scores, one number in a row: dataset, model, points, channel, lead, metric, value, seed.

    A value without any observation is NaN.

    Args:
        records: as `scoring.score` returns them.
    """
    import pandas as pd

    table = pd.DataFrame(list(records))
    return table.assign(value=pd.to_numeric(table["value"]))


def score_table(records: Sequence[Record]) -> pd.DataFrame:
    """Scores over all leads: a row for each model, group of points and channel.

    Columns: the metrics; the skill over persistence, 1 - MAE / MAE of persistence; and the scores
    of intervals where the models have any.

    Args:
        records: as `scoring.score` returns them.
    """
    tidy = records_table([record for record in records if record["lead"] == "all"])
    keys = ["model", "points", "channel"]
    table = tidy.pivot_table("value", keys, "metric", sort=False, dropna=False)
    intervals = [metric for metric in INTERVAL_METRICS if metric in table]
    table = table[[*METRICS, *intervals]]
    reference = table["mae"].xs("persistence").reindex(table.droplevel("model").index)
    table["skill"] = (1 - table["mae"] / reference.to_numpy()).where(reference.to_numpy() != 0)
    table.columns.name = None
    return table[[*METRICS, "skill", *intervals]]
