"""Series of all stations for the script of the page: observed values and forecasts in a stretch.

Values are stored as 16-bit integers in base64, a tenth of their size as text.
"""

from __future__ import annotations

import base64

import numpy as np
from jaxtyping import Float, Int64

from stonet.reporting.blocks import Json
from stonet.reporting.results import Results
from stonet.reporting.sections.common import unit_of

MAX_VALUES = 120_000  # of each kind, over all channels: 0.3 MB in the page
MAX_LENGTH = 240  # forecast times
MISSING = -32768
STEPS = 60_000  # that values are told apart in
MILLISECOND = 1_000_000


def stretch(
    results: Results, channels: int, at: tuple[int, int] | None = None
) -> Int64[np.ndarray, " row"]:
    """Consecutive windows of the cases, as many as the page has room for.

    Args:
        results: of the model.
        channels: number of channels that are shown.
        at: point and channel of which most values are to be observed (None: the last windows).
    """
    cases = results.cases
    count, horizon = cases.times.shape
    points = len(cases.points)
    most = min(MAX_LENGTH // horizon, MAX_VALUES // (horizon * points * channels), count)
    jumps = cases.times[1:, 0] <= cases.times[:-1, -1]  # another episode
    run_start = np.maximum.accumulate(np.where(np.append(True, jumps), np.arange(count), 0))
    length = np.minimum(np.arange(count) - run_start + 1, max(1, most))
    last = count - 1
    if at is not None:
        observed = np.isfinite(cases.truth[:, :, at[0], at[1]]).sum(1)
        total = np.append(0, np.cumsum(observed))
        inside = total[np.arange(count) + 1] - total[np.arange(count) + 1 - length]
        last = int(count - 1 - np.argmax(inside[::-1]))  # the latest of equal ones
    return np.arange(last - length[last] + 1, last + 1)


def encoded_series(results: Results, channel: int, rows: Int64[np.ndarray, " row"]) -> Json:
    """Times, observed values, forecasts and intervals of all points, for the script.

    Args:
        results: of the model.
        channel: its position.
        rows: windows of the cases, in the order of time.
    """
    cases = results.cases
    parts = {
        "observed": cases.truth,
        "forecast": cases.forecast,
        "low": cases.low,
        "high": cases.high,
    }
    chosen = {name: values[rows][..., channel] for name, values in parts.items()}
    finite = np.concatenate([v[np.isfinite(v)] for v in chosen.values()])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    step = (high - low) / STEPS or 1.0
    calendar = results.trained.time_spec.calendar
    unit = MILLISECOND if calendar else 1
    return {
        "times": (cases.times[rows].ravel() / unit).tolist(),
        "calendar": calendar,
        "low_value": low,
        "step": step,
        "channel": results.trained.channels[channel],
        "unit": unit_of(results, channel),
        "gap": 1.5 * results.trained.time_spec.step / unit,
        **{name: _packed(values, low, step) for name, values in chosen.items()},
    }


def _packed(values: Float[np.ndarray, "row future point"], low: float, step: float) -> str | None:
    """Values as little-endian 16-bit integers, point after point; None where there is none."""
    if not np.isfinite(values).any():
        return None
    series = values.reshape(-1, values.shape[-1]).T.astype(np.float64)
    counted = np.rint((series - low) / step) - STEPS / 2
    whole = np.where(np.isfinite(counted), counted, MISSING).astype("<i2")
    return base64.b64encode(whole.tobytes()).decode()
