"""Errors of the default model relative to the best reference forecast, on the test part.

    PYTHONPATH=tests:. python -m helpers.reference_ratios [CASE ...] [SEED ...]

prints them for the difficult fields.
"""

from __future__ import annotations

import sys

import numpy as np

import stonet
from helpers.difficult_fields import CASES
from stonet.data.field import Field

SETTINGS = ("train.epochs=4", "train.steps=25")


def ratios(field: Field, seed: int = 0, settings: tuple[str, ...] = SETTINGS) -> dict[str, float]:
    """For each channel and metric: the model's error over that of the best reference forecast.

    A forecast outside the range that training allows counts as infinite.
    """
    model = stonet.STONet(seed=seed, settings=settings).fit(field)
    scores = stonet.evaluate(model, field).xs("seen", level="points")
    found = {}
    for channel in field.channels:
        rows = scores.xs(channel, level="channel")
        for metric in ("mae", "rmse"):
            best = rows[metric].drop("stonet").min()
            found[f"{channel} {metric}"] = float(rows.loc["stonet", metric] / best)
    if not within_range(model, field):
        found["range"] = np.inf
    return found


def within_range(model: stonet.STONet, field: Field) -> bool:
    """Whether forecasts from every tenth frame of the test part lie in the model's range."""
    scaler, frames = model.trained.scaler, len(field.times)
    low = [-np.inf if end is None else end for end in scaler.low]
    high = [np.inf if end is None else end for end in scaler.high]
    for end in range(int(0.8 * frames), frames, max(1, frames // 20)):
        values = model.predict(field.between(0, end)).values
        if not ((np.array(low) - 1e-4 <= values) & (values <= np.array(high) + 1e-4)).all():
            return False
    return True


def main() -> None:
    """Print one line for each case, seed, channel and metric."""
    names = [word for word in sys.argv[1:] if word in CASES] or list(CASES)
    seeds = [int(word) for word in sys.argv[1:] if word.isdigit()] or [0]
    for name in names:
        for seed in seeds:
            found = ratios(CASES[name](seed), seed)
            texts = (f"{key} {value:.3f}" for key, value in found.items())
            print(f"{name:14s} seed {seed}: {', '.join(texts)}", flush=True)


if __name__ == "__main__":
    main()
