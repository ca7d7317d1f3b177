"""A small run with its data, and requests to a service of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fastapi.testclient import TestClient

from stonet.data.field import Field
from stonet.data.quantile_field import QuantileField
from stonet.estimator import STONet
from stonet.serving.app import create_app
from stonet.serving.guard import Policy
from stonet.serving.limits import Limits
from stonet.serving.page_files import PageFiles
from stonet.serving.service import Run, Service
from stonet.serving.times import label, labels

QUANTILES = [0.05, 0.25, 0.75, 0.95]
ADDRESS = "http://127.0.0.1:8000"
SETTINGS = ("data.past=8", "data.horizon=4", "train.steps=3", "train.epochs=1")
LIMITS = Limits(sites=4000, times=40, values=60_000, body_bytes=200_000)


@dataclass(frozen=True)
class Served:
    """A run, its estimator, and the data of its training."""

    folder: Path
    model: STONet
    data: Field


def make_client(
    served: Served, page: PageFiles | None = None, policy: Policy | None = None
) -> TestClient:
    service = Service(Run.load(served.folder), served.data, LIMITS)
    app = create_app(service, policy or Policy(), page)
    return TestClient(app, base_url=ADDRESS, raise_server_exceptions=False)


def posted(client: TestClient, path: str = "/v1/forecast", **content: object) -> dict:
    answer = client.post(path, json=content)
    assert answer.status_code == 200, answer.text
    return answer.json()


def numbers(rows: list) -> np.ndarray:
    """(time, site) in float32."""
    return np.array(rows, dtype=np.float64).astype(np.float32).T


def same(document: dict, expected: QuantileField) -> None:
    field = expected.field
    for c, name in enumerate(field.channels):
        channel = document["channels"][name]
        np.testing.assert_array_equal(numbers(channel["values"]), field.values[..., c])
        for tau, ends in zip(expected.quantiles, expected.values[..., c], strict=True):
            np.testing.assert_array_equal(numbers(channel["quantiles"][f"{tau:g}"]), ends)
    assert document["times"] == labels(field.times, True)
    assert document["issue_time"] == label(field.reference_time, True)
    assert [site["name"] for site in document["sites"]] == list(field.points.names)


def rows(field: Field, start: int, stop: int) -> dict:
    """Frames of a field as new observations; null where missing."""
    part = field.between(start, stop)
    values = part.values.astype(np.float64).astype(object)
    values[~part.observed] = None
    return {
        "times": labels(part.times, True),
        "stations": list(part.points.names),
        "values": {name: values[..., c].tolist() for c, name in enumerate(part.channels)},
    }
