"""Results are saved and loaded; a cell is locked by one process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.cells import cell

from stonet.errors import DataError, UsageError
from stonet.experiments.cell import Cell
from stonet.experiments.runner import run
from stonet.experiments.store import Store, read_result


def test_results_are_equal_after_saving_and_loading(
    data_file: str, store: Store, calls: list[Cell]
) -> None:
    one = cell(data_file, extra={"ratio": 0.5, "labels": None})
    outcome = run([one], store)
    kept = read_result(store.path(one))
    assert kept == outcome.results[one] and kept.cell == one
    assert kept.scores["mae"] == 0.333333 and Cell.from_json(one.to_json()) == one
    assert store.path(one).parent.parent.name == "comparison"
    assert store.all("comparison", "smoke") == [kept] and not store.all("comparison", "long")


def test_the_lock_of_a_dead_process_is_released(data_file: str, store: Store) -> None:
    one = cell(data_file)
    code = (
        "import sys, time, json\nfrom pathlib import Path\n"
        "from stonet.experiments.cell import Cell\nfrom stonet.experiments.store import Store\n"
        "with Store(Path(sys.argv[1])).claim(Cell.from_json(json.loads(sys.argv[2]))):\n"
        "    print('mine', flush=True)\n    time.sleep(60)\n"
    )
    words = [sys.executable, "-c", code, str(store.folder), json.dumps(one.to_json())]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "mine\n"
        with store.claim(one) as mine:
            assert not mine
        child.kill()
    with store.claim(one) as mine:
        assert mine


def test_files_without_a_result_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"format": 3}')
    with pytest.raises(DataError, match="no result"):
        read_result(tmp_path / "x.json")
    with pytest.raises(UsageError, match="No result"):
        read_result(tmp_path / "y.json")
