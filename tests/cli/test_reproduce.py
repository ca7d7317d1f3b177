"""stonet reproduce: cells are stored, names are checked first, a cell can be replayed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.command_line import alpine_field, json_result
from helpers.shell import Shell
from helpers.small import small_field

from stonet.io.write import write

WORDS = ["reproduce", "comparison", "--budget", "smoke", "--datasets", "a.nc"]


def test_cells_are_stored_shown_and_replayed(stonet: Shell) -> None:
    write(alpine_field(), "a.nc")
    once = json_result(stonet, *WORDS, "--models", "linear,stgcn")
    assert (once["computed"], once["cells"], once["failed"]) == (2, 2, [])
    table = {line["model"]: line for line in once["tables"]["comparison"]}
    assert table.keys() == {"linear", "stgcn"} and table["stgcn"]["steps"] == 4
    result = stonet(*WORDS, "--models", "linear,stgcn,references")
    assert result.code == 0 and "persistence" in result.out and "3 of 5 cells" in result.err
    files = sorted(Path("runs/smoke/comparison").rglob("*.json"))
    assert len(files) == 5 and Path("runs/smoke/comparison.png").stat().st_size > 5_000
    path = next(file for file in files if file.name.startswith("stgcn-s0-"))
    stored = json.loads(path.read_text())
    assert stored["cell"]["dataset"] == "a.nc" and stored["scores"]["training"]["steps"] == 4
    assert stored["scores"]["mae"] == table["stgcn"]["mae"]
    again = json_result(stonet, "reproduce", "--replay", path)
    assert again["changed"] == [] and len(again["scores"]) > 4
    assert all(line["recorded"] == line["now"] for line in again["scores"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reproduce", "comparision"], "Did you mean 'comparison'"),
        ([*WORDS[:4], "--datasets", "wav"], "Did you mean 'wave'"),
        ([*WORDS, "--models", "stgc"], "Did you mean 'stgcn'"),
        ([*WORDS, "--set", "train.rate=1"], "train"),
        ([*WORDS, "--seeds", "0"], "at least 1"),
        (["reproduce", "all", "--budget", "tiny"], "Unknown budget"),
        (["reproduce", "all", "--models", "stonet"], "Name it instead of 'all'"),
        (["reproduce", "page"], "repository's root"),
        (["reproduce", "--replay", "x.json"], "No result 'x.json'"),
    ],
)
def test_wrong_names_are_refused_before_any_work(
    stonet: Shell, words: list[str], message: str
) -> None:
    write(alpine_field(), "a.nc")
    assert message in stonet.refused(*words)
    assert not Path("runs").exists() and not Path("results").exists()


def test_failed_cells_are_reported_at_the_end(stonet: Shell) -> None:
    write(small_field(frames=12), "a.nc")  # too short for a window
    result = stonet(*WORDS, "--models", "persistence", "--json")
    assert result.code == 2 and not list(Path("runs").rglob("*.nc.json"))
    failed = json.loads(result.out)["failed"]
    assert "persistence, seed 0" in failed[0]["cell"] and "short" in failed[0]["error"]
