"""`stonet.report` and `stonet report`: a page on own and on fresh data; refusals come early."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.command_line import json_result
from helpers.report_page import Page
from helpers.report_runs import Report, small_run, stations
from helpers.shell import Shell

import stonet
from stonet.data.field import Dataset
from stonet.errors import UsageError
from stonet.estimator import STONet
from stonet.io.write import write
from stonet.training.trained_model import TrainedModel


@pytest.fixture(scope="module")
def fresh() -> Dataset:
    """Another month at the same stations, one channel of which never reports at one of them."""
    field = stations(frames=90, seed=1)
    values = field.values.copy()
    values[:, 4, 1] = float("nan")
    return Dataset((replace(field, values=values, mask=None),), "fresh")


def test_an_estimator_a_run_and_a_trained_model_give_a_page(
    spherical: Report, fresh: Dataset, tmp_path: Path
) -> None:
    loaded = STONet.load(spherical.run)
    for number, model in enumerate((spherical.run, loaded, TrainedModel.load(spherical.run))):
        path = stonet.report(model, fresh, tmp_path / f"{number}.html", part="all")
        page = Page(path.read_text(encoding="utf-8"))
        assert "applied to" in page.section("data").text
        has_intervals = bool(page.section("intervals").find("svg"))
        assert has_intervals == (not isinstance(model, TrainedModel))
    assert "No training curve" in page.section("training").text


def test_the_command_scores_as_evaluate_does(shell: Shell) -> None:
    """On the data of the training, whether they are named or not."""
    write(stations(frames=240).sel(channel="t2m"), Path("stations.csv"))
    small_run(Dataset((stonet.read("stations.csv"),), "stations.csv"), Path("run"))
    records = json_result(shell, "evaluate", "run")["records"]
    for data in ((), ("stations.csv",)):
        made = json_result(shell, "report", "run", *data, "-o", "page.html", "--title", "A <title>")
        assert made["records"] == records and made["report"] == "page.html"
        text = Path("page.html").read_text(encoding="utf-8")
        assert made["bytes"] == len(text.encode())
        page = Page(text)
        assert page.root.find("h1")[0].text == "A <title>"
        assert len(page.section("scores").find("tr", data_model="stonet")) == 1
        command = shlex.join(["stonet", "evaluate", "run", *data, "--part", "test", "--json"])
        assert command in page.section("provenance").text
        assert ("applied to" in page.section("data").text) == bool(data)


def test_what_cannot_be_written_or_scored_is_refused_before_any_work(
    shell: Shell, spherical: Report
) -> None:
    assert ".html" in shell.refused("report", "none", "-o", "page.pdf")
    assert "folder" in shell.refused("report", "none", "-o", "none/page.html")
    assert "part" in shell.refused("report", spherical.run, "--part", "tests")
    assert "No run" in shell.refused("report", "none")


def test_data_in_memory_must_be_given_again(spherical: Report, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Give them"):
        stonet.report(spherical.run, path=tmp_path / "page.html")
    assert not list(tmp_path.iterdir())
