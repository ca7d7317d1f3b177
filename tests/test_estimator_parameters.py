"""The estimator's parameters after scikit-learn, saved and loaded with the model; descriptions."""

from __future__ import annotations

import copy
import inspect
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.small import QUICK, small_dataset, small_field
from jaxtyping import config as shape_checks

from stonet.config import Config, load_config
from stonet.errors import ModelFileError, UsageError
from stonet.estimator import STONet
from stonet.training.run_folder import RunFolder
from stonet.training.trained_model import TrainedModel


def estimator(**arguments: object) -> STONet:
    return STONet(**{"preset": "tiny", "settings": QUICK} | arguments)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[STONet, Path]:
    folder = tmp_path_factory.mktemp("estimator") / "run"
    return estimator().fit(small_dataset(unseen=4), folder), folder


# Parameters, after scikit-learn

GIVEN = {"horizon": 3, "past": 5, "preset": "tiny", "seed": 7, "settings": ("train.lr=1e-3",)}


def clone(model: STONet) -> STONet:
    """As sklearn.base.clone: an unfitted copy, refused if the constructor changes a parameter."""
    copied = {name: copy.deepcopy(value) for name, value in model.get_params(deep=False).items()}
    made = type(model)(**copied)
    for name, value in made.get_params(deep=False).items():
        assert value is copied[name], f"the constructor modifies {name}"
    return made


@pytest.mark.parametrize(
    "settings",
    [(), ["train.lr=1e-3"], {"train": {"lr": 1e-3}}, {"train.lr": 1e-3}, load_config("paper")],
)
def test_an_estimator_can_be_cloned(settings: object, fitted: tuple[STONet, Path]) -> None:
    model = STONet(**GIVEN | {"settings": settings})  # type: ignore[arg-type]
    assert clone(model).config == model.config
    again = clone(fitted[0])
    assert again.get_params() == fitted[0].get_params()
    assert not again.__sklearn_is_fitted__() and fitted[0].__sklearn_is_fitted__()


def test_the_constructor_only_stores_its_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape_checks, "jaxtyping_disable", True)  # users run without type checks
    names = list(inspect.signature(STONet).parameters)
    given = {name: object() for name in names}
    model = STONet(**given)  # type: ignore[arg-type]
    assert vars(model) == given == model.get_params()


def test_parameters_make_the_configuration() -> None:
    config = STONet(**GIVEN).config  # type: ignore[arg-type]
    assert (config.data.horizon, config.data.past, config.train.seed) == (3, 5, 7)
    assert config.train.lr == 1e-3


def test_parameters_can_be_changed() -> None:
    model = STONet(preset="tiny")
    assert model.set_params(horizon="6h", seed=3) is model
    assert (model.config.data.horizon, model.config.train.seed) == ("6h", 3)
    with pytest.raises(ValueError, match=r"Unknown parameter 'horizn'.*Did you mean 'horizon'"):
        model.set_params(horizn=1)


def test_settings_may_be_strings_a_dictionary_or_a_configuration() -> None:
    expected = STONet(preset="tiny", settings=["train.lr=1e-3"]).config
    for settings in ({"train": {"lr": 1e-3}}, {"train.lr": 1e-3}, Config(train={"lr": 1e-3})):
        assert STONet(preset="tiny", settings=settings).config == expected  # type: ignore[arg-type]


def test_a_seed_among_the_settings_counts_unless_one_is_given() -> None:
    assert STONet(settings=["train.seed=3"]).config.train.seed == 3
    assert STONet(settings=["train.seed=3"], seed=0).config.train.seed == 0


def test_invalid_parameters_are_refused_by_fit() -> None:
    with pytest.raises(UsageError, match=r"Unknown preset 'tinny'.*Did you mean 'tiny'"):
        STONet(preset="tinny").fit(small_field())
    with pytest.raises(UsageError, match=r"Did you mean 'lr'"):
        STONet(settings=["train.lrr=1"]).fit(small_field())


# Save and load


@pytest.mark.parametrize(
    "settings", [QUICK, {"train": {"steps": 3}, "network.anchor": "last"}, load_config("tiny")]
)
def test_a_saved_estimator_is_loaded_with_its_parameters(settings: object, tmp_path: Path) -> None:
    model = estimator(horizon=3, seed=1, settings=settings).fit(small_field())
    model.save(tmp_path / "run")
    loaded = STONet.load(tmp_path / "run")
    assert loaded.config == model.config
    params = loaded.get_params()
    assert (params["horizon"], params["seed"], params["preset"]) == (3, 1, "tiny")
    assert not isinstance(settings, (tuple, dict)) or list(params["settings"]) == list(settings)
    field = small_field(frames=50)
    np.testing.assert_array_equal(loaded.predict(field).values, model.predict(field).values)
    assert loaded.score(small_field()) == model.score(small_field())
    again = loaded.fit(small_field())
    np.testing.assert_array_equal(again.predict(field).values, model.predict(field).values)


def test_a_run_folder_of_fit_restores_the_parameters_too(fitted: tuple[STONet, Path]) -> None:
    loaded = STONet.load(fitted[1])
    assert loaded.config == fitted[0].config
    assert loaded.score(small_dataset(4)) == fitted[0].score(small_dataset(4))


def test_a_loaded_estimator_can_be_saved_again(fitted: tuple[STONet, Path], tmp_path: Path) -> None:
    STONet.load(fitted[1]).save(tmp_path / "copy")
    first, second = (RunFolder(path) for path in (fitted[1], tmp_path / "copy"))
    for name in ("model.safetensors", "metrics.json", "config.json", "estimator.json"):
        assert first.read(name) == second.read(name), name


def test_a_run_of_the_command_line_is_loaded_with_its_configuration(
    fitted: tuple[STONet, Path], tmp_path: Path
) -> None:
    RunFolder(tmp_path / "run").publish(fitted[0].trained.files({}))
    loaded = STONet.load(tmp_path / "run")
    assert loaded.config == fitted[0].trained.config == loaded.get_params()["settings"]


def test_saving_does_not_replace_a_run(fitted: tuple[STONet, Path]) -> None:
    with pytest.raises(UsageError, match="holds a run already"):
        fitted[0].save(fitted[1])


@pytest.mark.parametrize(
    "content", [b"[]", b"{", b'{"horizn": 3}', b'{"preset": "tinny"}', b'{"settings": 3}']
)
def test_damaged_parameters_are_refused(
    content: bytes, fitted: tuple[STONet, Path], tmp_path: Path
) -> None:
    files = fitted[0].trained.files({}) | {"estimator.json": content}
    RunFolder(tmp_path / "run").publish(files)
    with pytest.raises(ModelFileError, match=r"estimator\.json"):
        STONet.load(tmp_path / "run")


# Descriptions


def test_an_estimator_describes_its_parameters_and_its_model(fitted: tuple[STONet, Path]) -> None:
    assert repr(STONet()) == "STONet()\n  state  not fitted"
    assert repr(STONet(horizon="6h", seed=0)).startswith("STONet(horizon='6h', seed=0)")
    for described in (fitted[0], fitted[0].trained):
        text = repr(described)
        for part in ("t2m (degC)", "6 steps in, 4 out, 1 h each", "16 points on a plane", "small"):
            assert part in text
        assert len(text.splitlines()) <= 5
        assert "<table>" in described._repr_html_()
    assert "parameters" in repr(fitted[0].trained)


def test_descriptions_stay_short_and_hold_no_foreign_markup(fitted: tuple[STONet, Path]) -> None:
    hostile = "<script>alert(1)</script>"
    many = ["train.lr=1e-3"] * 5000
    trained: TrainedModel = replace(
        fitted[0].trained, dataset=hostile * 100, channels=(hostile,) * 3000, units=("K",) * 3000
    )
    for described in (STONet(preset=hostile, settings=many), trained):
        assert len(repr(described)) < 600
        html = described._repr_html_()
        assert len(html) < 3000 and "<script" not in html and "&lt;script" in html
