"""The service: the first forecast of 500 stations, and a click on its map.

Requests go through the whole application, in this process and without a network: the checks of the
body, the forecast with four quantiles, and the JSON of the answer.
"""

from __future__ import annotations

import time

import numpy as np
from fastapi.testclient import TestClient

from benchmarks.data import HOUR, LATENT, weather
from benchmarks.harness import Record, Watch, alternate, empty_record
from stonet.calibration.fit import calibrate
from stonet.serving.app import create_app
from stonet.serving.service import Run, Service
from stonet.serving.times import label
from stonet.training.trained_model import TrainedModel

STATIONS, FRAMES = 500, 1000
QUANTILES = [0.05, 0.25, 0.75, 0.95]
CLICK_TIMES = [f"+{15 * k}min" for k in range(1, 49)]  # finer than the step of the data
ISSUES = 3  # issue times whose first forecast is timed
ADDRESS = "http://127.0.0.1"


def run(watch: Watch) -> list[Record]:
    """First forecasts and clicks with the linear anchor, the slower one.

    Args:
        watch: called before each step.
    """
    watch(0, 2, "training and calibration")
    return measure(watch, STATIONS, FRAMES)


def measure(watch: Watch, stations: int, frames: int) -> list[Record]:
    """Time requests to a service of simulated stations.

    Args:
        watch: called before each step.
        stations: number of points.
        frames: hours of data.
    """
    task = weather(stations, "network.anchor=linear", frames=frames)
    trained = TrainedModel.untrained(task)
    trained.model.fit_closed_form(task.windows("train"), task.windows("validation"), task.nodes)
    field = task.dataset.episodes[0]
    service = Service(Run(trained, calibrate(trained, task), "benchmark", "0"), field)
    watch(1, 2, "requests")
    # entered without the lifespan: nothing is warm
    client = TestClient(create_app(service), base_url=ADDRESS)
    latest = int(field.times[-1])
    first = [_first(client, label(latest - k * HOUR, True)) for k in range(1, ISSUES + 1)]
    draw = np.random.default_rng(0)

    def click() -> None:
        place = [float(draw.uniform(-60, 60)), float(draw.uniform(-180, 180))]
        _ask(client, {"sites": [place], "times": CLICK_TIMES, "quantiles": QUANTILES})

    click()  # the features of the latest issue time are warm from here on
    timing = alternate({"click": click})["click"]
    return [
        empty_record("first forecast", stations, LATENT, 1, "none")
        | {"seconds": float(np.median(first)), "slowest_seconds": max(first)},
        empty_record("click", stations, LATENT, 1, "none")
        | {"ms": 1e3 * timing.wall, "cpu_ms": 1e3 * timing.cpu},
    ]


def _first(client: TestClient, issue_time: str) -> float:
    """Seconds of the first forecast of all stations from an issue time."""
    started = time.perf_counter()
    _ask(client, {"quantiles": QUANTILES, "issue_time": issue_time})
    return time.perf_counter() - started


def _ask(client: TestClient, content: dict[str, object]) -> None:
    answer = client.post("/v1/forecast", json=content)
    assert answer.status_code == 200, answer.text
