"""The race chooses by validation, keeps to its share, and is neither repeated nor resumed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.small import quick, small_dataset

from stonet.config import load_config
from stonet.errors import DivergedError
from stonet.models.stonet import STONetwork
from stonet.training import race as race_module
from stonet.training.fit import fit_run
from stonet.training.race import candidates_of, settings_given, trainer_after_race
from stonet.training.run_folder import RunFolder
from stonet.training.schedule import clock
from stonet.training.state import State
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Progress, Trainer

LENGTH = ("train.steps=none", "train.epochs=4", "train.race=0.5")  # 72 steps: 12 for each of 3
GOOD: dict[str, Any] = {"train.lr": 1e-2, "network.layers": 2}
CANDIDATES = ({}, {"train.lr": 1e-9}, GOOD)


def offer(monkeypatch: pytest.MonkeyPatch, *candidates: Mapping[str, Any]) -> None:
    monkeypatch.setattr(STONetwork, "candidates", lambda self, config, samples: candidates)
    monkeypatch.setattr(STONetwork, "lr", 1e-8)
    monkeypatch.setattr(race_module, "MIN_STEPS", 2)


def fit(
    folder: Path | None, *settings: str, resume: bool = False, stop: int = 10**6
) -> tuple[TrainedModel, State]:
    def watch(progress: Progress) -> None:
        if progress.step == stop:
            raise KeyboardInterrupt

    return fit_run(Task.of(small_dataset(), quick(*LENGTH, *settings)), folder, resume, watch)


def weights(trained: TrainedModel) -> dict[str, list]:
    return {name: value.tolist() for name, value in trained.model.state_dict().items()}


def test_the_best_candidate_trains_on_with_the_rest_of_the_steps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    offer(monkeypatch, *CANDIDATES)
    trained, state = fit(tmp_path / "run")
    assert state.race is not None and state.race["chosen"] == GOOD
    entries = state.race["candidates"]
    assert [entry["settings"] for entry in entries] == list(CANDIDATES)
    assert entries[2]["validation"] == min(entry["validation"] for entry in entries)
    assert [entry["steps"] for entry in entries] == [12] * 3
    assert state.step + 3 * 12 == 72 and state.history[-1]["step"] == state.step
    assert (trained.config.train.lr, trained.config.network.layers) == (1e-2, 2)
    assert TrainedModel.load(tmp_path / "run").config == trained.config
    card = RunFolder(tmp_path / "run").read("README.md").decode()
    assert all(f"{entry['validation']:.5f}" in card for entry in entries)
    assert weights(fit(None)[0]) == weights(trained)  # again, bit by bit


def test_the_winner_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a training with its settings, in which nothing raced."""
    offer(monkeypatch, *CANDIDATES)
    task = Task.of(small_dataset(), quick(*LENGTH))
    trainer = trainer_after_race(task)
    trainer.prepare()
    offer(monkeypatch)
    plain = Task.of(small_dataset(), quick(*LENGTH, "train.lr=1e-2", "network.layers=2"))
    other = Trainer(TrainedModel.untrained(plain), plain)
    other.prepare()
    assert weights(trainer.trained) == weights(other.trained)


def test_a_resumed_training_does_not_race_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    offer(monkeypatch, *CANDIDATES)
    fit(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "resumed", stop=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(race_module, "race", lambda trainer: pytest.fail("it raced again"))
        fit(tmp_path / "resumed", resume=True)
    one, two = (next(RunFolder(tmp_path / name).states())[1] for name in ("whole", "resumed"))
    assert one == two


def test_what_the_user_has_set_is_not_raced(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, *CANDIDATES)
    trained, state = fit(None, "train.lr=1e-3", "network.layers=3", "train.epochs=1")
    assert state.race == {"chosen": {}, "candidates": [], "steps": 0, "spent": 0.0}
    assert (trained.config.train.lr, trained.config.network.layers) == (1e-3, 3)
    task = Task.of(small_dataset(), quick("train.lr=1e-3"))
    kept = candidates_of(Trainer(TrainedModel.untrained(task), task))
    assert kept == [{}, {"network.layers": 2}]
    given = load_config("tiny", settings={"train": {"lr": 1e-2}, "network.sun": False})
    assert {"train.lr", "network.sun", "network.latent"} <= settings_given(given)
    assert not {"train.decay", "network.anchor"} & settings_given(given)


@pytest.mark.parametrize("settings", ["train.race=0", "train.race=0.05"])
def test_without_a_race_the_first_candidate_is_used(
    settings: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the candidates would have too few steps."""
    offer(monkeypatch, {"train.lr": 2e-3}, {"train.lr": 3e-3})
    trained, state = fit(None, settings)
    assert trained.config.train.lr == 2e-3 and not state.race["candidates"]
    offer(monkeypatch)
    assert fit(None, "train.epochs=1")[1].race is None


def test_a_candidate_that_diverges_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Trainer.fit

    def failing(self: Trainer, *arguments: Any) -> State:
        if self.config.decay in (0.1, 0.2):
            raise DivergedError("too fast")
        return real(self, *arguments)

    monkeypatch.setattr(Trainer, "fit", failing)
    offer(monkeypatch, {"train.decay": 0.1}, {"train.decay": 0.3})
    assert fit(None)[1].race["chosen"] == {"train.decay": 0.3}
    offer(monkeypatch, {"train.decay": 0.1}, {"train.decay": 0.2})
    with pytest.raises(DivergedError):
        fit(None)


def test_in_minutes_the_race_has_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, *CANDIDATES)
    minutes = 0.06
    started = clock(torch.device("cpu"))()
    _, state = fit(None, f"train.minutes={minutes}")
    total = clock(torch.device("cpu"))() - started
    assert state.race is not None and len(state.race["candidates"]) == 3
    assert 0.35 * 60 * minutes < state.race["spent"] < 0.75 * 60 * minutes
    assert state.race["spent"] < state.begun < state.spent <= total
    assert 0.9 * 60 * minutes < state.spent < 1.2 * 60 * minutes + 0.5


def test_closed_forms_are_shared_where_a_model_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real, fitted = STONetwork.fit_closed_form, []

    def counted(self: STONetwork, *arguments: Any) -> None:
        fitted.append(self)
        real(self, *arguments)

    def adopt(self: STONetwork, other: STONetwork) -> bool:
        return self.load_state_dict(other.state_dict()) is not None

    monkeypatch.setattr(STONetwork, "fit_closed_form", counted)
    offer(monkeypatch, {}, {"train.lr": 1e-2})
    fit(None)
    assert len(fitted) == 2  # for each candidate, and not for the winner again
    monkeypatch.setattr(STONetwork, "adopt_closed_form", adopt)
    fit(None)
    assert len(fitted) == 3


def test_few_data_let_stonet_race_and_many_do_not() -> None:
    task = Task.of(small_dataset(), quick())
    trainer = Trainer(TrainedModel.untrained(task), task)
    assert len(candidates_of(trainer)) > 1
    assert not trainer.model.candidates(task.config, 10**9)


def test_what_the_data_suggest_joins_every_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, {"train.lr": 2e-3, "network.layers": 2}, {"train.lr": 3e-3})
    suggestion = {"network.layers": 3, "train.clip": 1.0}
    monkeypatch.setattr(STONetwork, "suggested", lambda self, train, nodes: suggestion)
    race = fit(None, "train.clip=2")[1].race
    found = [entry["settings"] for entry in race["candidates"]]
    assert found == [
        {"train.lr": 2e-3, "network.layers": 2},
        {"train.lr": 3e-3, "network.layers": 3},
    ]
    offer(monkeypatch)
    assert fit(None)[1].race["chosen"] == suggestion
