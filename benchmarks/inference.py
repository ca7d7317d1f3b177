"""Inference: one forecast, one new frame, a million queries."""

from __future__ import annotations

import itertools
import time
from functools import partial
from typing import Any

import numpy as np

from benchmarks.data import HOUR, globe, weather
from benchmarks.harness import Record, Work, alternate, empty_record, in_child
from stonet.data.geometry import Points
from stonet.inference.forecast import forecast
from stonet.inference.session import Session
from stonet.inference.stream import Stream
from stonet.system.progress import ProgressCallback
from stonet.training.trained_model import TrainedModel

BASELINES = ("gcgru", "dcrnn", "stgcn")
SENSORS, MANY, MEMORY = 500, 1_000_000, "2G"


def fitted(n: int, *settings: str) -> TrainedModel:
    """A run whose base is fitted; how well the network is trained does not change its cost."""
    task = weather(n, *settings)
    run = TrainedModel.untrained(task)
    run.model.fit_closed_form(task.windows("train"), task.windows("validation"), task.nodes)
    return run


def live(run: TrainedModel) -> Stream:
    """A stream that has seen its window."""
    field = globe(len(run.nodes), run.time_spec.past).episodes[0]
    stream = Stream(run)
    for moment, values in zip(field.times, field.values, strict=True):
        stream.observe(int(moment), values)
    return stream


def run(watch: ProgressCallback) -> list[Record]:
    """Warm calls in turns; the million in a process of its own."""
    watch(0, 3, "one forecast")
    made = {name: live(fitted(SENSORS, f"model={name}")) for name in ("stonet", *BASELINES)}
    time_spec = alternate({name: next_hour(stream) for name, stream in made.items()})
    records = [
        empty_record("forecast", SENSORS, 24, 1, "none") | {"ms": 1e3 * time_spec["stonet"].wall}
    ]
    records += [
        empty_record("forecast", SENSORS, 24, 1, name)
        | {"time_ratio": time_spec[name].cpu / time_spec["stonet"].cpu}
        for name in BASELINES
    ]
    watch(1, 3, "a new frame")
    records.append(_new_frame(made["stonet"]))
    watch(2, 3, "a million queries")
    return [*records, _million()]


def next_hour(stream: Stream) -> Work:
    """A new frame is observed, and a forecast made: what a service does every hour."""
    newest = stream.field.between(len(stream.field.times) - 1, len(stream.field.times))
    later = itertools.count(1)

    def call() -> None:
        stream.observe(int(newest.times[0]) + next(later) * HOUR, newest.values[0])
        stream.forecast()

    return call


def _new_frame(stream: Stream) -> Record:
    """A new frame and a forecast, against encoding the whole window again on the same graph."""
    field, session = stream.field, Session(stream.trained, stream.points)
    whole = partial(forecast, stream.trained, field, session=session)
    time_spec = alternate({"ours": next_hour(stream), "window": whole})
    record = empty_record("new frame", SENSORS, 24, 1, "whole window anew")
    ratio = time_spec["window"].cpu / time_spec["ours"].cpu
    return record | {"time_ratio": ratio, "ms": 1e3 * time_spec["ours"].wall}


def _million() -> Record:
    found = in_child({"do": "queries", "count": MANY, "memory": MEMORY}, OMP_NUM_THREADS="1")
    record = empty_record("queries", 2048, 24, 1, "unchunked")
    return record | {"queries": MANY} | found


def queries(count: int, memory: str) -> dict[str, Any]:
    """In a child: peak and rate of many queries under a limit, and their error on a sample."""
    from stonet.system.resources import peak_mb

    run = fitted(2048)
    field = globe(2048, run.time_spec.past).episodes[0]
    draw = np.random.default_rng(1)
    z, longitude = draw.uniform(-1, 1, count), draw.uniform(-180, 180, count)
    asked = Points(np.stack([np.degrees(np.arcsin(z)), longitude], axis=1), "sphere")
    started = time.perf_counter()
    answer = forecast(run, field, asked, memory=memory)
    seconds, peak = time.perf_counter() - started, peak_mb() / 1e3
    some = np.sort(draw.choice(count, 2000, replace=False))
    alone = forecast(run, field, asked.take(some))
    error = np.abs(answer.values[:, some] - alone.values).max() / np.abs(alone.values).max()
    rate = count * len(answer.times) / seconds
    return {"peak_gb": peak, "values_per_second": rate, "max_error": float(error)}
