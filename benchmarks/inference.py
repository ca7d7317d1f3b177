"""Inference: a forecast after a new frame, and a million query points."""

from __future__ import annotations

import itertools
import time
from functools import partial

import numpy as np

from benchmarks.data import HOUR, LATENT, globe, random_points, weather
from benchmarks.harness import Record, Watch, Work, alternate, empty_record, in_process
from stonet.inference.forecast import forecast
from stonet.inference.session import Session
from stonet.inference.stream import Stream
from stonet.training.trained_model import TrainedModel

BASELINES = ("gcgru", "dcrnn", "stgcn")
SENSORS, NODES, QUERIES, MEMORY_LIMIT = 500, 2048, 1_000_000, "2G"


def fitted(n: int, *settings: str) -> TrainedModel:
    """A model with its closed forms; the weights do not change the cost."""
    task = weather(n, *settings)
    trained = TrainedModel.untrained(task)
    trained.model.fit_closed_form(task.windows("train"), task.windows("validation"), task.nodes)
    return trained


def filled_stream(trained: TrainedModel) -> Stream:
    """A stream whose input window is complete."""
    field = globe(len(trained.nodes), trained.time_spec.past).episodes[0]
    stream = Stream(trained)
    for time_ns, values in zip(field.times, field.values, strict=True):
        stream.observe(int(time_ns), values)
    return stream


def run(watch: Watch) -> list[Record]:
    """Warm calls in turns; the million queries in a process of its own."""
    watch(0, 3, "one forecast")
    streams = {
        name: filled_stream(fitted(SENSORS, f"model={name}")) for name in ("stonet", *BASELINES)
    }
    timings = alternate({name: next_hour(stream) for name, stream in streams.items()})
    ours = timings["stonet"]
    records = [empty_record("forecast", SENSORS, LATENT, 1, "none") | {"ms": 1e3 * ours.wall}]
    records += [
        empty_record("forecast", SENSORS, LATENT, 1, name)
        | {"time_ratio": timings[name].cpu / ours.cpu}
        for name in BASELINES
    ]
    watch(1, 3, "a new frame")
    records.append(_new_frame(streams["stonet"]))
    watch(2, 3, "a million queries")
    return [*records, _million_queries()]


def next_hour(stream: Stream) -> Work:
    """A new frame is observed and a forecast made: what a service does every hour."""
    newest = stream.field.between(len(stream.field.times) - 1, len(stream.field.times))
    hours = itertools.count(1)

    def call() -> None:
        stream.observe(int(newest.times[0]) + next(hours) * HOUR, newest.values[0])
        stream.forecast()

    return call


def _new_frame(stream: Stream) -> Record:
    """A new frame and a forecast, against encoding the full window again on the same graph."""
    session = Session(stream.trained, stream.points)
    full_window = partial(forecast, stream.trained, stream.field, session=session)
    timings = alternate({"ours": next_hour(stream), "window": full_window})
    return empty_record("new frame", SENSORS, LATENT, 1, "whole window anew") | {
        "time_ratio": timings["window"].cpu / timings["ours"].cpu,
        "ms": 1e3 * timings["ours"].wall,
    }


def _million_queries() -> Record:
    """Peak memory and rate of a million query points under a memory limit."""
    sizes = {"count": QUERIES, "memory": MEMORY_LIMIT}
    cost = in_process(many_queries, sizes, OMP_NUM_THREADS="1")
    return empty_record("queries", NODES, LATENT, 1, "unchunked") | {"queries": QUERIES} | cost


def many_queries(count: int, memory: str) -> Record:
    """In a child: peak memory and rate under a limit, and the error on a sample of the points."""
    from stonet.system.resources import peak_mb

    trained = fitted(NODES)
    field = globe(NODES, trained.time_spec.past).episodes[0]
    draw = np.random.default_rng(1)
    queries = random_points(count, draw)
    started = time.perf_counter()
    chunked = forecast(trained, field, queries, memory=memory)
    seconds, peak = time.perf_counter() - started, peak_mb() / 1e3
    sample = np.sort(draw.choice(count, 2000, replace=False))
    direct = forecast(trained, field, queries.take(sample))
    error = np.abs(chunked.values[:, sample] - direct.values).max() / np.abs(direct.values).max()
    rate = count * len(chunked.times) / seconds
    return {"peak_gb": peak, "values_per_second": rate, "max_error": float(error)}
