"""stonet place: candidates of a file or of a grid, a map, and clear refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.command_line import alpine_field, json_result
from helpers.shell import Shell
from helpers.small import QUICK, small_field

from stonet.data.field import Field
from stonet.estimator import STONet


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs on a plane and on a sphere, by kind; the data lie beside them."""
    folder, found = tmp_path_factory.mktemp("place"), {}
    fields: tuple[Field, ...] = (small_field(), alpine_field())
    for field in fields:
        kind = field.points.kind
        field.to_netcdf(folder / f"{kind}.nc")
        model = STONet(preset="tiny", settings=[*QUICK, "network.anchor=linear"])
        model.fit(folder / f"{kind}.nc", folder / kind)
        found[kind] = folder / kind
    return found


@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_each_sensor_lowers_the_expected_error(
    runs: dict[str, Path], stonet: Shell, kind: str
) -> None:
    result = json_result(stonet, "place", runs[kind], "--count", "3", "-o", "x.html")
    rmse = result["rmse"]
    assert len(rmse) == 4 and (np.diff(rmse) < 0).all()
    assert rmse[0] > result["rmse_with_history"] > 0
    assert [sensor["rmse_after"] for sensor in result["sensors"]] == rmse[1:]
    assert Path("x.html").read_text().count("data-value") >= 3


def test_candidates_come_from_a_file(runs: dict[str, Path], stonet: Shell) -> None:
    names = {"Thun": (46.76, 7.63), "Aosta": (45.74, 7.32), "Como": (45.81, 9.08)}
    rows = [f"{name},{lat},{lon}" for name, (lat, lon) in names.items()]
    Path("sites.csv").write_text("\n".join(["name,lat,lon", *rows]))
    options = ["--candidates", "sites.csv", "--count", "2"]
    result = json_result(stonet, "place", runs["sphere"], *options)
    for sensor in result["sensors"]:
        assert names[sensor["name"]] == (sensor["lat"], sensor["lon"])
    table = stonet("place", runs["sphere"], *options)
    assert table.code == 0 and result["sensors"][0]["name"] in table.out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--candidates", "nowhere.csv"], "nowhere.csv"),
        (["--candidates", "grid:x"], "grid:STEP"),
        (["--candidates", "grid:-1"], "step"),
        (["--candidates", "0.5,0.5", "--count", "2"], "candidates"),
        (["--channel", "t2"], "t2m"),
        (["-o", "x.jpg"], "x.jpg"),
    ],
)
def test_what_does_not_exist_is_refused(
    runs: dict[str, Path], stonet: Shell, words: list[str], expected: str
) -> None:
    assert expected in stonet.refused("place", runs["plane"], *words)
