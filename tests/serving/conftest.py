"""A small run, and the service of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from fastapi.testclient import TestClient
from helpers.served import SETTINGS, Served, make_client

from stonet.calibration.document import FILE, to_bytes
from stonet.calibration.feedback import Feedback
from stonet.estimator import STONet
from stonet.io.write import write
from stonet.models.contract import small_field
from stonet.serving.page_files import PageFiles
from stonet.training.run_folder import RunFolder


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = tmp_path_factory.mktemp("serving")
    smooth = small_field("sphere", frames=500, channels=2)
    noise = np.random.default_rng(0).normal(size=smooth.values.shape) / 4
    data = replace(smooth, values=smooth.values + noise.astype(np.float32), mask=None)
    write(data, folder / "data.nc")
    model = STONet(preset="tiny", settings=SETTINGS).fit(folder / "data.nc", folder / "run")
    assert model._calibration is not None
    active = replace(model._calibration, feedback=Feedback((0.9, 0.8), (0.5, 0.3), (0.4, 0.2)))
    model._calibration = active  # corrects by recent errors, whatever validation said
    RunFolder(folder / "run").publish({FILE: to_bytes(active, data.channels)})
    return Served(folder / "run", model, data)


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> PageFiles:
    folder = tmp_path_factory.mktemp("page")
    (folder / "index.html").write_text("<!doctype html><title>map</title>")
    (folder / "app.js").write_text("'use strict';")
    (folder / "notes.txt").write_text("not of the page")
    (folder / "link.css").symlink_to("/etc/hostname")
    return PageFiles(folder)


@pytest.fixture(scope="module")
def client(served: Served, page: PageFiles) -> Iterator[TestClient]:
    """A client of a service whose observations no test may change."""
    with make_client(served, page) as found:
        yield found


@pytest.fixture
def fresh(served: Served) -> Iterator[TestClient]:
    """A client of a service of its own."""
    with make_client(served) as found:
        yield found
