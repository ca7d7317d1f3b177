"""A small run, and the service of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from helpers.served import SETTINGS, Served, make_client

from stonet.estimator import STONet
from stonet.io.write import write
from stonet.models.contract import small_field
from stonet.serving.page_files import PageFiles


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = tmp_path_factory.mktemp("serving")
    data = small_field("sphere", frames=500, channels=2)
    write(data, folder / "data.nc")
    model = STONet(preset="tiny", settings=SETTINGS)
    return Served(folder / "run", model.fit(folder / "data.nc", folder / "run"), data)


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
