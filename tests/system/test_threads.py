"""A training step shared by threads equals the step of one thread."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from helpers.small import quick, small_dataset

from stonet.errors import StonetError
from stonet.system import threads
from stonet.training.batches import split_consecutive
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Trainer

CPU = torch.device("cpu")


@pytest.fixture
def two_threads() -> int:
    """Two threads of PyTorch, whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield 2
    torch.set_num_threads(before)


def one_step(count: int, *settings: str) -> tuple[Trainer, int]:
    torch.set_num_threads(count)
    task = Task.of(small_dataset(), quick(*settings))
    trainer = Trainer(TrainedModel.untrained(task), task)
    trainer.prepare()
    step_batch = trainer.loader.step_batch(0)
    trainer.step(step_batch)
    return trainer, len(step_batch.micro_batches)


@pytest.mark.parametrize(
    "settings",
    [
        ("train.batch=8", "train.consecutive=4"),
        (
            "train.batch=6",
            "train.consecutive=2",
            "augmentation.hidden_sensors=0.3",
            "train.alpha=0.5",
        ),  # 4 and 2 windows
        ("train.batch=8", "train.consecutive=1", "model=gcgru"),
        ("train.batch=8", "train.consecutive=2", "train.tile=6"),
        ("train.batch=8", "train.consecutive=4", "train.precision=bf16"),
    ],
)
def test_two_threads_compute_the_gradients_of_one(
    two_threads: int, settings: tuple[str, ...]
) -> None:
    (alone, micro_batches), (both, shared) = one_step(1, *settings), one_step(2, *settings)
    assert (micro_batches, shared) == (1, 2)
    close = 6e-2 if "train.precision=bf16" in settings else 1e-4
    for one, other in zip(alone.parameters, both.parameters, strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None and other.grad is not None:
            scale = float(one.grad.abs().max()) + 1e-7
            torch.testing.assert_close(other.grad / scale, one.grad / scale, rtol=0, atol=close)
    assert both.loss == pytest.approx(alone.loss, rel=close)


def test_the_same_number_of_threads_repeats_the_same_bits(two_threads: int) -> None:
    settings = ("train.batch=8", "train.consecutive=4")
    (one, _), (other, _) = one_step(2, *settings), one_step(2, *settings)
    for first, second in zip(one.parameters, other.parameters, strict=True):
        assert torch.equal(first, second)


def test_parts_run_in_parallel_with_their_share_of_threads(two_threads: int) -> None:
    barrier = threading.Barrier(2, timeout=20)  # each waits for the other

    def work(part: int) -> tuple[int, int]:
        barrier.wait()
        return part, torch.get_num_threads()

    assert threads.each(work, [3, 4]) == [(3, 1), (4, 1)]
    assert torch.get_num_threads() == 2
    assert threads.each(lambda part: torch.get_num_threads(), [0]) == [2]  # alone, with all threads


def test_threads_that_start_later_have_the_default_number(two_threads: int) -> None:
    threads.each(lambda part: part, [1, 2])
    numbers: list[int] = []
    later = threading.Thread(target=lambda: numbers.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert numbers == [2]


def test_an_error_in_a_thread_is_raised(two_threads: int) -> None:
    def fail(part: int) -> int:
        raise StonetError(f"part {part}")

    with pytest.raises(StonetError, match="part 1"):
        threads.each(fail, [1, 2])
    assert torch.get_num_threads() == 2


def test_processes_of_one_machine_use_one_thread_each(
    two_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert threads.count(CPU) == 2 and threads.count(torch.device("cuda")) == 1
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert threads.count(CPU) == 1


def test_consecutive_windows_stay_together() -> None:
    chosen = np.array([4, 5, 6, 7, 20, 21, 22, 23, 1, 2])
    assert [list(part) for part in split_consecutive(chosen, 2)] == [
        [4, 5, 6, 7, 20, 21, 22, 23],
        [1, 2],
    ]
    assert [len(part) for part in split_consecutive(chosen, 3)] == [4, 4, 2]
    for shares in (1, 2, 3, 4, 9):
        parts = split_consecutive(chosen, shares)
        assert len(parts) == min(shares, 3) and (np.concatenate(parts) == chosen).all()
    assert [list(part) for part in split_consecutive(chosen[:4], 2)] == [
        [4, 5, 6, 7]
    ]  # consecutive windows are not split
