"""A run folder returns the saved model bit by bit, or is refused with a clear message."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.small import quick, small_dataset, small_field

from stonet import __version__
from stonet.data.field import Dataset
from stonet.data.scaling import Scaler
from stonet.errors import ModelFileError, UsageError
from stonet.inference.forecast import forecast
from stonet.training.fit import fit_run
from stonet.training.run_folder import RunFolder, pack, unpack
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel, versions

Files = dict[str, bytes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    fit_run(Task.of(small_dataset(), quick()), path, False, lambda progress: None)
    return path


@pytest.mark.parametrize("model", ["stonet", "linear", "persistence"])
def test_a_loaded_model_forecasts_as_the_saved_one(model: str, tmp_path: Path) -> None:
    task = Task.of(small_dataset(), quick(f"model={model}", "network.anchor=linear"))
    trained, _ = fit_run(task, tmp_path / "run", False, lambda progress: None)
    loaded, field = TrainedModel.load(tmp_path / "run"), small_field(frames=40, points=7, seed=5)
    expected, got = (forecast(r, field, times=["+90min", "+4h"]) for r in (trained, loaded))
    np.testing.assert_array_equal(got.values, expected.values)
    assert np.isfinite(got.values).all() and got.units == ("degC",)
    same = ("config", "time_spec", "scaler", "nodes", "channels", "units", "dataset")
    assert all(getattr(loaded, name) == getattr(trained, name) for name in same)


def test_forecasts_of_a_loaded_model_stay_within_the_bounds(tmp_path: Path) -> None:
    """Temperatures have a lower bound of 9.5 degrees here."""
    field = small_field()
    field = replace(field, values=np.maximum(field.values, np.float32(9.5)))
    task = Task.of(Dataset((field,), "small"), quick("network.anchor=linear"))
    trained, _ = fit_run(task, tmp_path / "run", False, lambda progress: None)
    loaded = TrainedModel.load(tmp_path / "run")
    assert loaded.scaler == trained.scaler
    assert loaded.scaler.low == (9.5,) and loaded.scaler.high[0] > np.nanmax(field.values[:84])
    lowest = forecast(loaded, field.between(0, 40)).values.min()
    assert lowest == np.float32(9.5)  # reached, as in the data
    unbounded = replace(loaded, scaler=Scaler(trained.scaler.mean, trained.scaler.std))
    assert forecast(unbounded, field.between(0, 40)).values.min() != lowest


def test_initial_weights_depend_on_the_seed() -> None:
    tasks = [Task.of(small_dataset(), quick(f"train.seed={seed}")) for seed in (3, 3, 4)]
    first, again, other = (
        torch.cat([p.flatten() for p in TrainedModel.untrained(task).model.parameters()])
        for task in tasks
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_the_folder_holds_safetensors_and_text_only(folder: Path) -> None:
    published = set(RunFolder(folder).files)
    texts = {"config.json", "points.json", "scaler.json", "metrics.json", "README.md"}
    assert published == texts | {"model.safetensors"}
    for name in texts | {"manifest.json"}:
        (folder / name).read_text(encoding="utf-8")
    for file in folder.rglob("*.safetensors"):
        unpack(file.read_bytes(), file.name)
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["steps"] == 6 and len(metrics["history"]) == 3
    assert metrics["best_validation"] == min(e["validation"] for e in metrics["history"])


def test_the_model_card_describes_the_model_and_its_use(folder: Path) -> None:
    card, trained = (folder / "README.md").read_text(), TrainedModel.load(folder)
    size = sum(p.numel() for p in trained.model.parameters())
    best = json.loads((folder / "metrics.json").read_text())["best_validation"]
    for fact in (
        "# stonet trained on small",
        "forecasts t2m (degC), 6 steps in, 4 out, step 3600 s",
        f"20 training points on a plane; {size} parameters",
        f"validation MAE (normalised): {best:.5f}",
        f"seed 0, stonet {__version__}",
        "stonet predict FOLDER DATA -o forecast.nc",
    ):
        assert fact in card


def republished(folder: Path, place: Path, change: Callable[[Files], Files]) -> Path:
    """A copy of the run with some files replaced and a matching manifest."""
    shutil.copytree(folder, place)
    files = RunFolder(place)
    files.publish(change({name: files.read(name) for name in files.files}))
    return place


def edited(name: str, **values: object) -> Callable[[Files], Files]:
    return lambda files: {name: json.dumps(json.loads(files[name]) | values).encode()}


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "scaler.json", "points.json"])
def test_a_tampered_file_is_refused(name: str, folder: Path, tmp_path: Path) -> None:
    file = shutil.copytree(folder, tmp_path / "run") / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"is not valid: expected \w{64}, got \w{64}") as error:
        TrainedModel.load(tmp_path / "run")
    assert error.value.exit_code == 3 and name in str(error.value)


def other_config(section: str, **values: object) -> Callable[[Files], Files]:
    def change(files: Files) -> Files:
        document = json.loads(files["config.json"])
        document["config"][section] |= values
        return {"config.json": json.dumps(document).encode()}

    return change


def other_weights(rename: Callable[[str], str], shape: Callable[[torch.Tensor], torch.Tensor]):
    def change(files: Files) -> Files:
        tensors, document = unpack(files["model.safetensors"], "weights")
        changed = {rename(name): shape(tensor) for name, tensor in tensors.items()}
        return {"model.safetensors": pack(changed, document)}

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_config("network", latent=9), r"size mismatch"),
        (other_config("network", latent=-1), r"network\.latent"),
        (other_config("network", latent=10**7), r"network\.latent"),
        (other_config("network", latent=4_000), r"far larger model"),
        (edited("config.json", time_spec={"step": 0}), r"do not fit together"),
        (edited("scaler.json", mean=[float("nan")]), r"NaN"),
        (edited("scaler.json", std=[0.0]), r"scaler\.std"),
        (other_config("network", depth=3), r"Unknown key .*'depth'"),
        (other_config("graph", levels=1), r"do not fit together"),
        (edited("config.json", channels=["a", "b"], units=["K", "K"]), r"scaler\.mean"),
        (edited("config.json", config=[1]), r"do not fit together"),
        (edited("config.json", time_spec={"step": 1}), r"TimeSpec\.past"),
        (edited("points.json", coordinates=[[1.0]]), r"do not fit together"),
        (other_weights(lambda n: f"x.{n}", lambda t: t), r"Missing key"),
        (other_weights(lambda n: n, lambda t: t[None]), r"size mismatch"),
        (lambda files: {"config.json": b"[]", "scaler.json": b"7"}, r"config\.json|format None"),
        (lambda files: {"scaler.json": b"{"}, r"scaler\.json is not a JSON object"),
        (
            lambda files: {"model.safetensors": b"x" * 99},
            r"model\.safetensors is not valid: .*checksum",
        ),
    ],
)
def test_files_that_do_not_fit_together_are_refused(
    change: Callable[[Files], Files], message: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ModelFileError, match=message) as error:
        TrainedModel.load(republished(folder, tmp_path / "run", change))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("number", "remedy"), [(4, "Upgrade stonet"), (2, "Fit again")])
def test_another_format_is_refused_with_its_remedy(
    folder: Path, tmp_path: Path, number: int, remedy: str
) -> None:
    later = republished(folder, tmp_path / "run", edited("config.json", format=number))
    with pytest.raises(ModelFileError, match=rf"has format {number}; .* reads format 3.*{remedy}"):
        TrainedModel.load(later)


def test_a_missing_run_is_refused_with_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"No run in .*Run `stonet fit DATA -o ") as error:
        TrainedModel.load(tmp_path / "missing")
    assert error.value.exit_code == 2 and not list(tmp_path.iterdir())


def test_versions_name_the_packages() -> None:
    assert versions()["stonet"] == __version__
    assert torch.__version__.startswith(versions()["torch"])  # which may add a build
    assert set(versions()) == {"stonet", "python", "torch", "numpy", "scipy", "xarray"}
