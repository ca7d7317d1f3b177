"""Small linear problems with exact solutions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from stonet.data.batch import Batch, make_batch
from stonet.data.durations import SECOND
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.data.scaling import Scaler
from stonet.data.time_spec import TimeSpec
from stonet.data.windows import Windows, cut
from stonet.linear.fit import fit_linear
from stonet.linear.local_polynomials import Stencil, make_stencil
from stonet.linear.regression import LinearForecast

HOUR = 3600 * SECOND


TIMES = TimeSpec(step=SECOND, past=6, horizon=4, calendar=False)


DAILY = TimeSpec(step=HOUR, past=2, horizon=4, calendar=True)


POINTS = Points(np.random.default_rng(0).uniform(0, 1, (12, 2)))


def windows(
    values: np.ndarray,
    time_spec: TimeSpec = TIMES,
    observed: np.ndarray | None = None,
    points: Points = POINTS,
) -> Windows:
    """Every window of one episode (time, node, channel)."""
    field = Field(
        values.astype(np.float32),
        time_spec.step * np.arange(len(values)),
        points,
        tuple(f"c{i}" for i in range(values.shape[-1])),
        observed,
        calendar=time_spec.calendar,
    )
    return cut((field,), Scaler.identity(values.shape[-1]), time_spec)


def batch_of(
    values: np.ndarray,
    leads: list[float],
    observed: np.ndarray | None = None,
    lags: list[float] | None = None,
) -> Batch:
    """One window of these frames with these leads."""
    frames = torch.from_numpy(values)
    mask = torch.ones_like(frames, dtype=torch.bool) if observed is None else torch.tensor(observed)
    lags = list(range(1 - len(values), 1)) if lags is None else lags
    times, future = (np.rint(SECOND * np.array(t)).astype(np.int64) for t in (lags, leads))
    past = np.arange(len(values))[None]
    batch = make_batch(lambda i: (frames[i], mask[i]), times, past, future[None], TIMES)
    return replace(batch, lag=batch.lag.double(), lead=batch.lead.double())


def forecast(
    base: LinearForecast, batch: Batch, queries: Points = POINTS, nodes: Points = POINTS
) -> torch.Tensor:
    """The forecast of one window: (future, query, channel)."""
    stencil = make_stencil(queries, nodes, base.covariance)
    return base(batch, stencil.to(torch.device("cpu"), batch.frames.dtype))[0]


def single(stencil: Stencil) -> Stencil:
    """The stencil in the precision of the frames of a window."""
    return stencil.to(torch.device("cpu"), torch.float32)


def noise(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def fitted(
    train: Windows, validation: Windows, time_spec: TimeSpec = TIMES, kind: str = "ridge"
) -> LinearForecast:
    base = LinearForecast(time_spec, len(train.fields[0].channels), kind)
    fit_linear(base, train, validation, POINTS)
    return base
