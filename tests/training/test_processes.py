"""Real processes: training survives SIGKILL, and two processes train as one does.

They are started by torchrun, by torchrun on two machines, or by `--devices`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from helpers.paths import ROOT
from helpers.small import small_field

from stonet.config import load_config
from stonet.data.field import Dataset
from stonet.errors import ModelFileError
from stonet.io.read import read
from stonet.training.fit import fit_run
from stonet.training.run_folder import RunFolder, unpack
from stonet.training.task import Task
from stonet.training.trainer import Progress

ALONE = ("-m", "stonet")
TOGETHER = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "stonet")
AGENT = (
    *("-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d"),
    *("--rdzv-id=stonet", "-m", "stonet"),
)
FIT = ("fit", "data.nc", "--preset", "tiny", "--json", "--set", "train.save_every=1")
# SIGKILL at a fixed step, from within: a step takes milliseconds.
KILLED = """
import os, signal
from pathlib import Path
from stonet.config import load_config
from stonet.training.fit import fit_run
from stonet.data.field import Dataset
from stonet.io.read import read
from stonet.training.task import Task

def kill(progress):
    if progress.step == 5:
        os.kill(os.getpid(), signal.SIGKILL)

config = load_config("tiny", settings=["train.save_every=1"])
dataset = Dataset((read(Path("data.nc")),), "data.nc")
fit_run(Task.of(dataset, config), Path("killed"), False, kill)
"""


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
    return json.loads(out)  # one object: only the first process prints


def fit_here(where: Path, name: str, *settings: str, stop: int = 10**6) -> None:
    """The same as FIT in this process, interrupted after `stop` steps."""

    def interrupt(progress: Progress) -> None:
        if progress.step == stop:
            raise KeyboardInterrupt

    dataset = Dataset((read(where / "data.nc"),), "data.nc")
    task = Task.of(dataset, load_config("tiny", settings=settings))
    with suppress(KeyboardInterrupt):
        fit_run(task, where / name, False, interrupt)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and with `alone`, the run of one process after 12 steps."""
    folder = tmp_path_factory.mktemp("processes")
    small_field().to_netcdf(str(folder / "data.nc"))
    fit_here(folder, "alone")
    return folder


def saved_step(run: Path) -> int:
    try:
        state = next(RunFolder(run).states(), None)
        return -1 if state is None else int(unpack(state[1], "state")[1]["state"]["step"])
    except ModelFileError as error:
        pytest.fail(f"a partly written state was read: {error}")


def test_a_training_resumed_after_sigkill_equals_an_uninterrupted_one(place: Path) -> None:
    process = start(place, "-c", KILLED)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL and saved_step(place / "killed") == 4
    assert finish(start(place, *ALONE, *FIT, "-o", "killed", "--resume"))["steps"] == 12
    killed, alone = RunFolder(place / "killed"), RunFolder(place / "alone")
    assert next(killed.states())[1] == next(alone.states())[1]
    assert killed.read("model.safetensors") == alone.read("model.safetensors")


def check_equal(run: Path, reference: Path) -> None:
    """The same losses and weights up to rounding, and no temporary files."""
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
    check_equal(place / "together", place / "alone")


@pytest.mark.long
def test_two_processes_resume_the_training_of_one(place: Path) -> None:
    fit_here(place, "relay", stop=4)
    assert saved_step(place / "relay") == 4
    finish(start(place, *TOGETHER, *FIT, "-o", "relay", "--resume"))
    check_equal(place / "relay", place / "alone")


@pytest.mark.long
def test_two_machines_train_as_one_does(place: Path) -> None:
    """Simulated by two agents on loopback; either of them may lead."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    agent = (*AGENT[:2], f"--rdzv-endpoint=127.0.0.1:{port}", *AGENT[2:])
    agents = [start(place, *agent, *FIT, "-o", "machines") for _ in range(2)]
    answers = [process.communicate(timeout=120) for process in agents]
    assert [process.returncode for process in agents] == [0, 0], answers
    assert [json.loads(out)["steps"] for out, _ in answers if out] == [12]
    check_equal(place / "machines", place / "alone")


# stonet fit --devices


def listeners(parent: int) -> set[str]:
    """Addresses where the children of a process accept connections, as the kernel writes them."""
    inodes = set()
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        for opened in Path(f"/proc/{child}/fd").iterdir():
            with suppress(OSError):
                inodes.add(os.readlink(opened).removeprefix("socket:[").removesuffix("]"))
    rows = [
        line.split()
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(table).read_text().splitlines()[1:]
    ]
    return {row[1].partition(":")[0] for row in rows if row[3] == "0A" and row[9] in inodes}


def test_two_devices_train_as_one_does_and_listen_on_loopback_only(place: Path) -> None:
    addresses: set[str] = set()
    process = start(place, *ALONE, *FIT, "-o", "devices", "--devices", "2")
    while process.poll() is None:
        with suppress(OSError):  # a child may end meanwhile
            addresses |= listeners(process.pid)
        time.sleep(0.02)
    assert finish(process)["steps"] == 12
    check_equal(place / "devices", place / "alone")
    assert addresses == {"0100007F"}  # 127.0.0.1


@pytest.mark.long
def test_two_devices_train_on_tiles_as_one_does(place: Path) -> None:
    tiles = ("--set", "train.tile=7", "--set", "train.steps=9")
    fit_here(place, "tiled", "train.tile=7", "train.steps=9", "train.save_every=1")
    finish(start(place, *ALONE, *FIT, *tiles, "-o", "both", "--devices", "2"))
    check_equal(place / "both", place / "tiled")


@pytest.mark.long
def test_an_interrupt_saves_and_training_can_be_resumed(place: Path) -> None:
    long = ("--set", "train.epochs=400", "--set", "train.patience=400")
    process = start(place, *ALONE, *FIT, *long, "-o", "stopped", "--devices=2")
    while saved_step(place / "stopped") < 2 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.count("--resume") == 1 and "Traceback" not in err
    assert json.loads(out)["error"]["exit_code"] == 130
    assert 2 <= saved_step(place / "stopped") < 2400
    more = ("--set", "train.epochs=1", "--set", "train.patience=400")
    finish(start(place, *ALONE, *FIT, *more, "-o", "stopped", "--devices=2", "--resume"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("--set", "train.batch=1"), "2 processes cannot share batches of 1 windows"),
        (("--set", "train.device=cuda"), "PyTorch sees no GPU"),
    ],
)
def test_an_error_is_reported_once_with_its_exit_code(
    place: Path, settings: tuple[str, ...], message: str
) -> None:
    process = start(place, *ALONE, *FIT, "-o", "refused", "--devices=2", *settings)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 2 and err.count(message) == 1 and err.count("stonet:") == 1, err
    assert message in json.loads(out)["error"]["message"]
    assert not (place / "refused").exists()


@pytest.mark.long
def test_the_death_of_one_process_ends_the_others(place: Path) -> None:
    long = ("--set", "train.epochs=400", "--set", "train.patience=400")
    process = start(place, *ALONE, *FIT, *long, "-o", "lost", "--devices=2")
    while saved_step(place / "lost") < 2 and process.poll() is None:
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[1]), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 4 and "Process 1 of 2 was ended by SIGKILL" in err, err
    assert err.count("stonet:") == 1 and "Traceback" not in err
    assert not Path(f"/proc/{children[0]}").exists()


@pytest.mark.parametrize(
    "settings",
    [
        ("paper.kernel=diag", "model=stonet-paper"),
        ("operator.terms=3", "model=stonet-operator", "data.horizon=2"),
    ],
    ids=["diag", "terms"],
)
def test_two_processes_train_models_with_unused_weights(
    place: Path, settings: tuple[str, ...]
) -> None:
    """A diagonal kernel; decoders of segments beyond the horizon."""
    name = settings[0].split("=")[0]
    every = (*settings, "train.epochs=1", "train.steps=3")
    words = [word for setting in every for word in ("--set", setting)]
    assert finish(start(place, *TOGETHER, *FIT, *words, "-o", name))["steps"] == 3
    fit_here(place, f"{name}-alone", *every)
    check_equal(place / name, place / f"{name}-alone")
