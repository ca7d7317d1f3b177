"""stonet plot: each kind of figure, and clear refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.command_line import alpine_field, json_result
from helpers.shell import Shell
from helpers.small import QUICK

from stonet.estimator import STONet

KINDS = ("--map", "--series", "--errors", "--reliability")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run folder and the file it was fitted on."""
    folder = tmp_path_factory.mktemp("plot")
    alpine_field(frames=200).to_netcdf(folder / "data.nc")
    settings = [*QUICK, "data.unseen=0.2"]
    STONet(preset="tiny", settings=settings).fit(folder / "data.nc", folder / "run")
    return folder / "run", folder / "data.nc"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_drawn(run: tuple[Path, Path], stonet: Shell, kind: str) -> None:
    result = json_result(stonet, "plot", run[0], kind, "-o", "x.html")
    assert result["out"] == "x.html" and f"--{result['kind']}" == kind
    assert Path("x.html").read_text().count("<svg") == len(result["panels"]) > 0


def test_a_past_issue_shows_what_was_observed(run: tuple[Path, Path], stonet: Shell) -> None:
    options = ["--lead", "+1h", "--lead", "+2h", "--issue", "2026-03-06T00", "--grid", "0.5"]
    result = json_result(stonet, "plot", *run, "--map", *options, "-o", "x.html")
    text = Path("x.html").read_text()
    assert len(result["panels"]) == 2 and text.count("data-value") >= 2 * 15


def test_series_are_drawn_at_stations_and_anywhere(run: tuple[Path, Path], stonet: Shell) -> None:
    places = ["--at", "3", "--at", "46.9,7.4"]
    result = json_result(stonet, "plot", *run, "--series", *places, "-o", "x.svg", "--size", "3")
    assert [name.split()[-1] for name in result["panels"]] == ["3", "46.9,7.4"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "--map"),
        (["--map", "--series"], "2 kinds"),
        (["--map", "-o", "x.jpg"], "x.jpg"),
        (["--map", "--part", "test"], "--part"),
        (["--errors", "--lead", "+1h"], "--lead"),
        (["--reliability", "--channel", "t2m"], "--channel"),
        (["--map", "--size", "90"], "--size"),
        (["--map", "--channel", "t2"], "t2m"),
        (["--map", "--issue", "1999"], "1999"),
        (["--map", "--lead", "+40d"], "out of reach"),
        (["--series", "--at", "nowhere"], "nowhere"),
        (["--errors", "--metric", "mse"], "mse"),
        (["--errors", "--part", "tset"], "tset"),
    ],
)
def test_what_does_not_exist_is_refused(
    run: tuple[Path, Path], stonet: Shell, words: list[str], expected: str
) -> None:
    assert expected in stonet.refused("plot", run[0], *words)
    assert not list(Path().glob("*.png"))
