"""Blobs return exactly the packed values or fail; a run folder never mixes two sets of files.

Failures and kills while writing are tested in test_run_folder_faults.py.
"""

from __future__ import annotations

import io
import itertools
import json
import pickle
import random
import zipfile
from pathlib import Path

import pytest
import safetensors.torch
import torch

from stonet.errors import ModelFileError, ResourceError, UsageError
from stonet.training import run_folder
from stonet.training.run_folder import RunFolder, pack, unpack

OLD = {"model.json": b"old", "weights": b"old" * 999, "figures/lead.png": b"o"}
NEW = {"model.json": b"new", "weights": b"new" * 555, "figures/lead.png": b"n"}


def some_tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "weight": torch.randn(3, 5, generator=generator),
        "transposed": torch.randn(3, 5, generator=generator).T,
        "double": torch.randn(4, generator=generator, dtype=torch.float64),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "step": torch.tensor(7),
        "rate": torch.tensor(1e-300, dtype=torch.float64),
        "flag": torch.tensor(True),
        "flags": torch.tensor([True, False, True]),
        "rng state": torch.randint(0, 256, (17,), generator=generator, dtype=torch.uint8),
        "empty": torch.zeros(0, 3),
        "température": torch.tensor([-0.0, 5e-324]),
    }


def some_document() -> dict:
    return {
        "config": {"lr": 0.1, "name": 'a "quoted" \\ π \ud800'},
        "history": [1, 2.5, None, True],
    }


def test_unpacked_content_equals_packed_content_bit_by_bit() -> None:
    tensors, document = unpack(pack(some_tensors(), some_document()), "blob")
    assert document == some_document()
    assert list(tensors) == sorted(some_tensors())
    for name, expected in some_tensors().items():
        assert tensors[name].dtype == expected.dtype and tensors[name].shape == expected.shape
        bits = [t.contiguous().reshape(-1).view(torch.uint8) for t in (tensors[name], expected)]
        assert torch.equal(*bits), name


def test_equal_content_packs_to_equal_bytes_in_any_order() -> None:
    shuffled = dict(reversed(some_tensors().items()))
    assert {pack(some_tensors(), {"a": 1}) for _ in range(9)} == {pack(shuffled, {"a": 1})}


def test_tensors_that_share_memory_or_need_gradients_are_unpacked_as_copies() -> None:
    parameter = torch.nn.Parameter(torch.arange(6.0))
    tensors, _ = unpack(pack({"a": parameter, "b": parameter[2:], "c": parameter}, {}), "blob")
    tensors["a"].zero_()
    assert tensors["b"].tolist() == [2, 3, 4, 5] and tensors["c"].tolist() == [0, 1, 2, 3, 4, 5]


def test_a_blob_is_an_ordinary_safetensors_file() -> None:
    blob = pack({"a": torch.ones(2)}, {"b": 3})
    assert safetensors.torch.load(blob)["a"].tolist() == [1, 1]


def test_every_flipped_bit_and_every_truncation_is_detected() -> None:
    blob = pack({"a": torch.arange(4.0), "n": torch.tensor(3)}, {"history": [1.5, "é"]})
    for position, bit in itertools.product(range(len(blob)), range(8)):
        mutant = bytearray(blob)
        mutant[position] ^= 1 << bit
        with pytest.raises(ModelFileError):
            unpack(bytes(mutant), "mutant")
    for length in range(len(blob)):
        with pytest.raises(ModelFileError):
            unpack(blob[:length], "mutant")


def test_random_splices_are_detected() -> None:
    blob, rng = pack(some_tensors(), some_document()), random.Random(0)
    for _ in range(500):
        start, stop = sorted(rng.sample(range(len(blob) + 1), 2))
        mutant = blob[:start] + rng.randbytes(rng.choice([0, 1, stop - start])) + blob[stop:]
        with pytest.raises(ModelFileError):
            unpack(mutant, "mutant")


class Payload:
    """Unpickled, it would create the canary."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple:
        return Path.touch, (self.canary,)


def test_foreign_files_are_refused_and_never_executed(tmp_path: Path) -> None:
    pickled = pickle.dumps(Payload(tmp_path / "canary"))
    pickle.loads(pickled)  # noqa: S301  the payload works
    (tmp_path / "canary").unlink()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("archive/data.pkl", pickled)
    plain = safetensors.torch.save({"a": torch.ones(2)})
    for foreign in (pickled, archive.getvalue(), plain, b"", b"{}", b"lead,rmse\n1,0.3\n" * 99):
        with pytest.raises(ModelFileError, match=r"weights\.pt is not valid: .*fit again"):
            unpack(foreign, "weights.pt")
    assert not (tmp_path / "canary").exists()


def with_checksum(header: object, body: bytes = b"", document: str = "{}") -> bytes:
    """A hostile blob: any content, with a correct checksum."""
    opening = {"__metadata__": {"stonet": "0" * 64 + document}}
    text = json.dumps(opening | header if isinstance(header, dict) else header, separators=",:")
    blob = len(text).to_bytes(8, "little") + text.encode() + body
    place = run_folder.CHECKSUM
    return blob[: place.start] + run_folder._checksum(blob) + blob[place.stop :]


def header(dtype: str, shape: list[int], stop: int) -> dict:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": [0, stop]}}


def test_hostile_content_with_a_correct_checksum_is_refused() -> None:
    nan, empty = torch.tensor(float("nan")).numpy().tobytes(), {"shape": [0], "dtype": "F32"}
    many = {str(n): empty | {"data_offsets": [0, 0]} for n in range(4097)}
    unpack(with_checksum(header("F32", [2], 8), bytes(8)), "valid")
    for hostile in (
        with_checksum(header("F32", [], 4), nan),
        with_checksum(header("F32", [10**12], 8), bytes(8)),
        with_checksum(header("F32", [2], 80), bytes(8)),
        with_checksum(header("F7", [2], 8), bytes(8)),
        with_checksum(header("F8_E8M0", [8], 8), bytes(8)),
        with_checksum({"a": 3}),
        with_checksum(many),
        with_checksum({}, document='{"loss": NaN}'),
        with_checksum({}, document='{"loss": 1e999}'),
        with_checksum({}, document='[["loss", 1]]' * 2),
        with_checksum({}, document="[" * 10**5),
        with_checksum({}, document='{"a":' * 10**5 + "1" + "}" * 10**5),
        with_checksum({}, document="1" * 10**5),
        with_checksum({}, document="7"),
        with_checksum({}, document='{"a": "' + "x" * (16 << 20) + '"}'),
        with_checksum({"x" * (34 << 20): empty | {"data_offsets": [0, 0]}}),
        with_checksum("x" * 200),
    ):
        with pytest.raises(ModelFileError, match=r"^hostile is not valid"):
            unpack(hostile, "hostile")


def test_content_that_could_not_be_read_is_not_packed() -> None:
    infinite = {"bias": torch.ones(1), "weight": torch.tensor([1.0, float("inf")])}
    with pytest.raises(ModelFileError, match=r"NaN or infinity in tensor 'weight'.*diverged"):
        pack(infinite, {})
    with pytest.raises(ModelFileError, match="not JSON compliant"):
        pack({}, {"loss": float("nan")})
    with pytest.raises(ModelFileError, match="4097 tensors"):
        pack({str(n): torch.zeros(1) for n in range(4097)}, {})
    with pytest.raises(ModelFileError, match="bytes of document"):
        pack({}, {"history": "x" * (16 << 20)})


# The run folder


def old_folder(path: Path) -> Path:
    RunFolder(path).publish(OLD)
    return path


def tree(path: Path) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}


def test_a_reader_never_mixes_two_sets(tmp_path: Path) -> None:
    path = old_folder(tmp_path / "run")
    RunFolder(path).publish({"notes.txt": b"stay"})
    reader = RunFolder(path)
    assert reader.read("model.json") == b"old"
    RunFolder(path).publish(NEW)
    with pytest.raises(ModelFileError):
        reader.read("weights")
    assert reader.read("notes.txt") == b"stay"
    assert RunFolder(path).read("weights") == NEW["weights"]


def test_the_manifest_lists_the_present_files_of_all_publications(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "new" / "run")
    folder.publish({"a": b"1", "b": b"2"})
    (folder.path / "b").unlink()
    folder.publish({"c": b"3"})
    listed = json.loads((folder.path / "manifest.json").read_bytes())
    assert listed == {"format": 1, "files": folder.files} and sorted(folder.files) == ["a", "c"]


def test_a_changed_missing_or_unlisted_file_is_refused(tmp_path: Path) -> None:
    path = old_folder(tmp_path / "run")
    (path / "stray").write_bytes(b"never published")
    (path / "weights").write_bytes(b"new" * 999)
    (path / "model.json").unlink()
    folder = RunFolder(path)
    with pytest.raises(ModelFileError, match=r"weights is not valid: expected \w{64}, got \w{64}"):
        folder.read("weights")
    with pytest.raises(ModelFileError, match=r"model\.json .*got no such file.*fit again"):
        folder.read("model.json")
    for name in ("stray", "../run/stray", str(path / "stray"), ".lock", "trainer/last.safetensors"):
        with pytest.raises(ModelFileError, match=r"expected one of \['figures/lead.png', "):
            folder.read(name)


def test_reading_where_there_is_no_run_fails_and_creates_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for name in ("missing", "file", "empty"):
        folder = RunFolder(str(tmp_path / name))
        assert folder.files == {} and not list(folder.states())
        with pytest.raises(UsageError, match=rf"Run `stonet fit DATA -o .*{name}` first"):
            folder.read("model.json")
    assert sorted(tree(tmp_path)) == ["file"] and not list((tmp_path / "empty").iterdir())
    with pytest.raises(ResourceError):
        RunFolder(tmp_path / "file").publish(NEW)


def test_a_lock_can_be_nested_excludes_others_and_is_released(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path), RunFolder(tmp_path)
    with pytest.raises(OSError, match="the caller's own"), first.lock(), first.lock():
        first.publish(OLD)
        with pytest.raises(ResourceError, match=r"in use by process \d+\. Wait"):
            second.save_state(b"1")
        first.save_state(b"1")
        raise OSError("the caller's own")
    assert second.files == {}  # the files at opening
    with second.lock(), pytest.raises(ResourceError, match="in use"):
        assert second.files == first.files != {}
        first.publish(NEW)


def test_the_newest_state_and_the_previous_one_are_kept(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    for state in (b"1", b"2", b"3"):
        folder.save_state(state)
    kept = [(Path(source).name, data) for source, data in folder.states()]
    assert kept == [("last.safetensors", b"3"), ("previous.safetensors", b"2")]


FOREIGN = [b"", b"\xff\xfe", b"[]", b"{}", b"[" * 10**5]
FOREIGN += [b'{"format": 1, "format": 1, "files": {}}']
FOREIGN += [b'{"format": 2, "files": {}}', b'{"format": 1, "files": ["a"]}']
OUTSIDE = ["../a", "/etc/passwd", "a/../b", "a/b/c", ".lock", "a\\b", "a\0", "", "a/"]


def test_an_invalid_manifest_or_one_that_names_files_outside_is_refused(tmp_path: Path) -> None:
    listings = [json.dumps({"format": 1, "files": {n: "0" * 64}}).encode() for n in OUTSIDE]
    for manifest in FOREIGN + listings:
        (tmp_path / "manifest.json").write_bytes(manifest)
        with pytest.raises(ModelFileError, match=r"manifest\.json is not valid: expected format 1"):
            RunFolder(tmp_path)


def test_names_outside_the_folder_or_reserved_cannot_be_published(tmp_path: Path) -> None:
    for name in [*OUTSIDE, "a/.b", "manifest.json", "trainer/a", "a\n"]:
        with pytest.raises(UsageError, match="Cannot publish"):
            RunFolder(tmp_path / "run").publish({"good": b"", name: b""})
    assert not list(tmp_path.iterdir())
