"""Real processes: training survives SIGKILL, and two of them train as one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from small import small_field

from stonet.checkpoint import RunFolder, unpack
from stonet.config import load_config
from stonet.errors import ModelFileError
from stonet.estimator import fit_run
from stonet.field import Dataset
from stonet.sources import read
from stonet.task import Task
from stonet.training import Progress

ROOT = Path(__file__).parents[1]
ALONE = ("-m", "stonet")
TOGETHER = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "stonet")
FIT = ("fit", "data.nc", "--preset", "tiny", "--json", "--set", "train.save_every=1")


def start(where: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=where,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> dict:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out)  # one object: of several processes only the first one talks


def fit_here(where: Path, name: str, *settings: str, stop: int = 10**6) -> None:
    """The same as FIT in this process, up to Ctrl-C after some steps."""

    def watch(progress: Progress) -> None:
        if progress.step == stop:
            raise KeyboardInterrupt

    dataset = Dataset((read(where / "data.nc"),), "data.nc")
    task = Task.of(dataset, load_config("tiny", settings=settings))
    with suppress(KeyboardInterrupt):
        fit_run(task, where / name, False, watch)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, and with `whole`, the run that one process made of it in 12 steps."""
    folder = tmp_path_factory.mktemp("processes")
    small_field().to_netcdf(str(folder / "data.nc"))
    fit_here(folder, "whole")
    return folder


def saved_step(run: Path) -> int:
    try:
        state = next(RunFolder(run).states(), None)
        return -1 if state is None else int(unpack(state[1], "state")[1]["state"]["step"])
    except ModelFileError as error:
        pytest.fail(f"a half-written state was seen: {error}")


def test_sigkill_and_resume_is_as_if_nothing_had_happened(place: Path) -> None:
    process = start(place, *ALONE, *FIT, "-o", "killed", "--resume")
    while saved_step(place / "killed") < 4 and process.poll() is None:
        time.sleep(0.002)
    process.kill()
    process.communicate()
    assert 4 <= saved_step(place / "killed") < 12
    assert finish(start(place, *ALONE, *FIT, "-o", "killed", "--resume"))["steps"] == 12
    killed, whole = RunFolder(place / "killed"), RunFolder(place / "whole")
    assert next(killed.states())[1] == next(whole.states())[1]
    assert killed.read("model.safetensors") == whole.read("model.safetensors")


def check_alike(run: Path, reference: Path) -> None:
    """The same losses and weights but for rounding, and one tidy folder."""
    for (name, got), (_, expected) in zip(numbers(run), numbers(reference), strict=True):
        assert float((got - expected).norm() / expected.norm()) < 1e-5, name
    assert not [file for file in run.rglob(".*") if file.name != ".lock"]


def numbers(run: Path) -> list[tuple[str, torch.Tensor]]:
    folder = RunFolder(run)
    history = json.loads(folder.read("metrics.json"))["history"]
    losses = [entry[key] or 0.0 for entry in history for key in ("train", "validation")]
    weights, _ = unpack(folder.read("model.safetensors"), "weights")
    every = torch.cat([weight.double().flatten() for weight in weights.values()])
    return [("losses", torch.tensor(losses, dtype=torch.float64)), ("weights", every)]


def test_two_processes_train_as_one_does(place: Path) -> None:
    assert finish(start(place, *TOGETHER, *FIT, "-o", "together"))["steps"] == 12
    check_alike(place / "together", place / "whole")


@pytest.mark.long
def test_two_processes_go_on_with_what_one_began(place: Path) -> None:
    fit_here(place, "relay", stop=4)
    assert saved_step(place / "relay") == 4
    finish(start(place, *TOGETHER, *FIT, "-o", "relay", "--resume"))
    check_alike(place / "relay", place / "whole")
