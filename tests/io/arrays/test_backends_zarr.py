"""Zarr stores of both versions are read; malicious and damaged ones are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import DataError, ResourceError, StonetError, UsageError
from stonet.io.arrays import zarr_safety
from stonet.io.read import read
from stonet.io.write import write

pytest.importorskip("zarr")
SECRET = b"the content of another file, 32b"


def field(seed: int = 0) -> Field:
    generator = np.random.default_rng(seed)
    values = generator.normal(size=(6, 4, 2)).astype(np.float32)
    values[2, 1] = np.nan
    points = Points(generator.uniform(-50, 50, (4, 2)), "sphere", ("a", "Zürich", "c", "d"))
    return Field(
        values,
        np.datetime64("2024-01-01", "ns").astype(int) + 3600 * 10**9 * np.arange(6),
        points,
        ("t2m", "wind"),
        units=("K", "m s-1"),
        sites={"altitude": np.arange(4.0)},
    )


def grid() -> xr.Dataset:
    values = np.random.default_rng(0).normal(size=(5, 4, 6)).astype(np.float32)
    time = np.datetime64("2024-01-01", "ns") + np.arange(5) * np.timedelta64(1, "h")
    coords = {"time": time, "lat": np.linspace(60, 30, 4), "lon": np.linspace(0, 300, 6)}
    return xr.Dataset({"u": (("time", "lat", "lon"), values, {"units": "K"})}, coords)


def write_store(
    dataset: xr.Dataset, path, version: int = 2, consolidated: bool = True, **encoding
) -> None:
    options = {"u": encoding} if encoding else None
    dataset.to_zarr(path, zarr_format=version, consolidated=consolidated, encoding=options)


@pytest.mark.parametrize("forecast", [True, False])
def test_written_stores_are_read_back(tmp_path, forecast):
    expected = field()
    if forecast:
        expected = replace(expected, reference_time=int(expected.times[0]) - 3600 * 10**9)
    write(expected, tmp_path / "own.zarr")
    actual = read(tmp_path / "own.zarr")
    for name in ("values", "mask", "times"):
        np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name))
    assert (actual.points, actual.quantity) == (expected.points, expected.quantity)
    assert actual.reference_time == expected.reference_time
    assert np.array_equal(actual.sites["altitude"], expected.sites["altitude"])


@pytest.mark.filterwarnings("ignore")  # zarr's own, on writing
@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.parametrize(
    ("version", "encoding"),
    [
        (2, {}),
        (3, {}),
        (3, {"chunks": (2, 2, 3), "shards": (4, 4, 6)}),
        (2, {"chunks": (2, 2, 3), "dtype": "int16", "scale_factor": 2**-12, "_FillValue": -1}),
    ],
)
def test_versions_and_encodings_agree(tmp_path, version, consolidated, encoding):
    write_store(grid(), tmp_path / "data.zarr", version, consolidated, **encoding)
    actual, expected = read(tmp_path / "data.zarr"), read(grid())
    assert np.allclose(actual.values, expected.values, atol=2**-12 if "dtype" in encoding else 0)
    assert np.array_equal(actual.times, expected.times)
    assert actual.points == expected.points
    part = read(tmp_path / "data.zarr", bbox=(-70, 40, 70, 60), start="2024-01-01T02")
    assert len(part.times) == 3
    assert {lon for _, _, lon in part.points} == {0.0, 60.0, 300.0}


def test_a_store_is_recognised_by_its_content(tmp_path):
    write_store(grid(), tmp_path / "no_suffix")
    assert read(tmp_path / "no_suffix").points == read(grid()).points
    (tmp_path / "file.zarr").write_text("")
    with pytest.raises(DataError, match=r"file.zarr' is not a folder"):
        read(tmp_path / "file.zarr")
    (tmp_path / "empty.zarr").mkdir()
    with pytest.raises(DataError, match=r"empty.zarr' has none of .*not a Zarr store"):
        read(tmp_path / "empty.zarr")


def test_a_missing_library_is_named(tmp_path):
    write_store(grid(), tmp_path / "data.zarr")
    code = (
        "import sys; sys.modules['zarr'] = None\n"
        "from stonet.io.read import read\n"
        f"read({str(tmp_path / 'data.zarr')!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "UsageError" in done.stderr
    assert "pip install 'stonet[io]'" in done.stderr


# Malicious stores


def change(path, **metadata) -> None:
    """Change the metadata of u, also where they are consolidated."""
    for name, steps in ((".zmetadata", ("metadata", "u/.zarray")), ("u/.zarray", ())):
        if not (path / name).exists():
            continue
        document = part = json.loads((path / name).read_text())
        for step in steps:
            part = part[step]
        part |= metadata
        (path / name).write_text(json.dumps(document))


def link_a_chunk(path) -> None:
    (path.parent / "secret").write_bytes(SECRET * 15)
    (path / "u" / "0.0.0").unlink()
    (path / "u" / "0.0.0").symlink_to(path.parent / "secret")


def link_the_array(path) -> None:
    (path / "u").rename(path.parent / "elsewhere")
    (path / "u").symlink_to(path.parent / "elsewhere")


def block_with_a_pipe(path) -> None:
    (path / "u" / "0.0.0").unlink()
    os.mkfifo(path / "u" / "0.0.0")


EXPLOITS = {
    "pickle": lambda p: change(p, filters=[{"id": "pickle", "protocol": 5}]),
    "pickle behind strings": lambda p: change(
        p, dtype="|O", filters=[{"id": "vlen-utf8"}, {"id": "pickle"}]
    ),
    "json2": lambda p: change(p, filters=[{"id": "json2"}]),
    "msgpack2": lambda p: change(p, filters=[{"id": "msgpack2"}]),
    "objects": lambda p: change(p, dtype="|O", filters=None, fill_value=None),
    "unknown codec": lambda p: change(p, compressor={"id": "my_codec"}),
    "four terabytes": lambda p: change(p, shape=[10**6, 10**3, 10**3]),
    "an endless axis": lambda p: change(p, shape=[2**62, 4, 6]),
    "a giant chunk": lambda p: change(p, chunks=[10**6, 10**3, 10**3]),
    "negative chunks": lambda p: change(p, chunks=[-1, 4, 6]),
    "text for a shape": lambda p: change(p, shape=["a", 4, 6]),
    "a link out of the store": link_a_chunk,
    "a linked folder": link_the_array,
    "a pipe": block_with_a_pipe,
    "no JSON": lambda p: (p / "u" / ".zarray").write_text("{" * 10**5),
    "a list": lambda p: (p / ".zmetadata").write_text("[1]"),
    "a truncated chunk": lambda p: (p / "u" / "0.0.0").write_bytes(
        (p / "u" / "0.0.0").read_bytes()[:50]
    ),
}


@pytest.mark.parametrize("name", EXPLOITS)
def test_malicious_stores_are_refused(tmp_path, name):
    write_store(grid(), tmp_path / "bad.zarr", consolidated=name != "no JSON", chunks=(5, 4, 6))
    read(tmp_path / "bad.zarr")
    EXPLOITS[name](tmp_path / "bad.zarr")
    begin = time.monotonic()
    with pytest.raises(StonetError, match=r"bad.zarr") as refused:
        read(tmp_path / "bad.zarr")
    assert time.monotonic() - begin < 5
    assert SECRET.decode() not in str(refused.value)


@pytest.mark.filterwarnings("ignore")
def test_nested_codecs_of_version_3_are_checked(tmp_path):
    write_store(grid(), tmp_path / "v3.zarr", 3, chunks=(1, 2, 3), shards=(5, 4, 6))
    file = tmp_path / "v3.zarr" / "u" / "zarr.json"
    for where in ("codecs", "index_codecs"):
        metadata = json.loads(file.read_text())
        metadata["codecs"][0]["configuration"][where].append({"name": "evil"})
        file.write_text(json.dumps(metadata))
        with pytest.raises(DataError, match=r"'u' is encoded with 'evil', which is not supported"):
            zarr_safety.check_store(tmp_path / "v3.zarr")


def test_links_within_a_store_are_followed(tmp_path):
    write_store(grid(), tmp_path / "data.zarr", chunks=(5, 4, 6))
    chunk = tmp_path / "data.zarr" / "u" / "0.0.0"
    chunk.rename(chunk.with_name("real"))
    chunk.symlink_to("real")
    (tmp_path / "link.zarr").symlink_to(tmp_path / "data.zarr")
    np.testing.assert_array_equal(read(tmp_path / "link.zarr").values, read(grid()).values)


def test_addresses_are_not_opened():
    for address in (
        "https://example.org/a.zarr",
        "simplecache::s3://b/a.zarr",
        "file:///tmp/a.zarr",
    ):
        with pytest.raises(UsageError, match="No file"):
            read(address)


def test_a_chunk_beyond_the_memory_budget_is_refused(tmp_path, monkeypatch):
    write_store(grid(), tmp_path / "data.zarr", chunks=(5, 4, 6))
    monkeypatch.setenv("STONET_MEMORY", "200")
    with pytest.raises(ResourceError, match=r"a chunk of variable 'u' would take 480 bytes"):
        read(tmp_path / "data.zarr")
