"""Runs from a folder, from a snapshot of the Hugging Face Hub, and from the Hub itself (faked)."""

from __future__ import annotations

import shutil
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from helpers.contracts import small_field

import stonet
from stonet.errors import ModelFileError, ResourceError, UsageError
from stonet.inference.hub import FILES

FIELD = small_field("sphere")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub") / "run"
    settings = ["model=persistence", "train.epochs=1"]
    stonet.STONet(preset="tiny", settings=settings).fit(FIELD, folder=folder)
    return folder


def snapshot_of(run: Path, cache: Path) -> Path:
    """The layout of the Hub's cache: links from snapshots/REVISION to blobs."""
    snapshot, blobs = cache / "snapshots" / "abc", cache / "blobs"
    for folder in (snapshot, blobs):
        folder.mkdir(parents=True)
    for number, file in enumerate(path for path in run.iterdir() if path.is_file()):
        shutil.copyfile(file, blobs / str(number))
        (snapshot / file.name).symlink_to(Path("../../blobs", str(number)))
    return snapshot


def forecast(model: stonet.STONet) -> np.ndarray:
    return model.predict(FIELD).values


def test_a_folder_and_a_snapshot_give_the_same_model(run: Path, tmp_path: Path) -> None:
    expected = forecast(stonet.STONet.load(run))
    for source in (run, str(run), snapshot_of(run, tmp_path)):
        assert np.array_equal(forecast(stonet.STONet.from_pretrained(source)), expected)


@pytest.mark.parametrize("inside", [False, True], ids=["elsewhere", "in the folder above"])
def test_a_link_that_leads_out_of_the_snapshot_is_refused(
    run: Path, tmp_path: Path, inside: bool
) -> None:
    snapshot = snapshot_of(run, tmp_path / "cache")
    secret = (tmp_path / "cache" if inside else tmp_path) / "secret"
    secret.write_text("{}")
    (snapshot / "README.md").unlink()
    (snapshot / "README.md").symlink_to(secret)
    with pytest.raises(ModelFileError, match="out of the snapshot"):
        stonet.STONet.from_pretrained(snapshot)


def test_a_changed_file_of_a_snapshot_is_refused(run: Path, tmp_path: Path) -> None:
    snapshot = snapshot_of(run, tmp_path)
    path = (snapshot / "scaler.json").resolve()
    path.write_text(path.read_text().replace("1", "2"))
    with pytest.raises(ModelFileError):
        stonet.STONet.from_pretrained(snapshot)


def fake_hub(monkeypatch: pytest.MonkeyPatch, answer: Path | Exception) -> list[dict]:
    calls: list[dict] = []

    def snapshot_download(repo_id: str, **options: object) -> str:
        calls.append({"repo_id": repo_id, **options})
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    fake = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    return calls


def test_only_the_files_of_a_run_are_downloaded(run, tmp_path, monkeypatch) -> None:
    calls = fake_hub(monkeypatch, snapshot_of(run, tmp_path))
    model = stonet.STONet.from_pretrained("some-one/a.model", revision="v1")
    assert np.array_equal(forecast(model), forecast(stonet.STONet.load(run)))
    allowed = [*FILES]
    assert calls == [{"repo_id": "some-one/a.model", "revision": "v1", "allow_patterns": allowed}]
    assert not any("*" in name or name.endswith((".py", ".bin", ".pt")) for name in allowed)
    published = {path.name for path in run.iterdir() if not path.name.startswith((".", "trainer"))}
    assert published <= set(allowed)


def test_without_network_the_message_says_what_was_asked(monkeypatch) -> None:
    fake_hub(monkeypatch, OSError("no route"))
    with pytest.raises(ResourceError, match=r"some/model.*no route"):
        stonet.STONet.from_pretrained("some/model")


@pytest.mark.parametrize("source", ["nowhere", "../up/there", "a/b/c", "/no/such/folder", "a b/c"])
def test_what_is_neither_a_folder_nor_an_id_is_refused(source: str, monkeypatch) -> None:
    calls = fake_hub(monkeypatch, OSError())
    with pytest.raises(UsageError, match="neither a folder nor"):
        stonet.STONet.from_pretrained(source)
    assert not calls


def test_without_the_package_the_extra_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UsageError, match=r"stonet\[hub\]"):
        stonet.STONet.from_pretrained("some/model")
