"""Chunks that unpack to more than they declare are refused before they are unpacked."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tracemalloc
import zlib
from pathlib import Path

import numcodecs
import numpy as np
import pytest
import xarray as xr

from stonet.errors import DataError, ResourceError
from stonet.io.arrays.zarr_chunks import unpacked_size
from stonet.io.read import read

zarr = pytest.importorskip("zarr")

CODECS = {
    "gzip": numcodecs.GZip(9),
    "zlib": numcodecs.Zlib(9),
    "bz2": numcodecs.BZ2(9),
    "lzma": numcodecs.LZMA(),
    "lz4": numcodecs.LZ4(),
    "zstd": numcodecs.Zstd(9),
}
LARGE = np.zeros(2**26, np.uint8)  # bytes of zeros: a few kilobytes compressed


def dataset() -> xr.Dataset:
    values = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    return xr.Dataset(
        {"u": (("time", "x"), values)}, {"time": np.arange(8.0), "x": np.arange(4.0), "y": 0.0}
    )


def version_3(path: Path, codec: str, **encoding: object) -> Path:
    made = {"gzip": zarr.codecs.GzipCodec, "zstd": zarr.codecs.ZstdCodec}[codec]()
    encoding = {"u": {"compressors": [made], "chunks": (4, 4), **encoding}}
    dataset().to_zarr(path, zarr_format=3, encoding=encoding, consolidated=False)
    return path


def version_2(path: Path, codec: str) -> Path:
    encoding = {"u": {"compressors": [CODECS[codec]], "chunks": (4, 4)}}
    dataset().to_zarr(path, zarr_format=2, encoding=encoding)
    return path


@pytest.fixture(autouse=True)
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STONET_MEMORY", "100k")  # else small files need not be looked at


def refused(path: Path, chunk: str, content: bytes) -> None:
    np.testing.assert_array_equal(read(path).values[..., 0], dataset().u.values)
    (path / "u" / chunk).write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(ResourceError, match=f"chunk 'u/{chunk}' unpacks to more than"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < LARGE.nbytes / 4
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", CODECS)
def test_a_chunk_that_unpacks_to_too_much_is_refused(tmp_path: Path, codec: str) -> None:
    refused(version_2(tmp_path / "x.zarr", codec), "1.0", CODECS[codec].encode(LARGE))


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_version_3_and_its_shards_are_checked_alike(tmp_path: Path, codec: str) -> None:
    bomb = CODECS[codec].encode(LARGE)
    refused(version_3(tmp_path / "x.zarr", codec), "c/1/0", bomb)
    sharded = version_3(tmp_path / "s.zarr", codec, shards=(8, 4))
    np.testing.assert_array_equal(read(sharded).values[..., 0], dataset().u.values)
    from zarr.codecs import Crc32cCodec  # noqa: F401  the index of a shard ends with a checksum

    index = np.array([0, len(bomb), 0, len(bomb)], "<u8").tobytes()
    checksum = numcodecs.checksum32.CRC32C().encode(index)  # type: ignore[attr-defined]
    refused(sharded, "c/0/0", bomb + bytes(checksum))


def test_an_array_that_is_compressed_twice_is_refused(tmp_path: Path) -> None:
    encoding = {"u": {"compressors": [CODECS["zstd"]], "filters": [CODECS["gzip"]]}}
    dataset().to_zarr(tmp_path / "x.zarr", zarr_format=2, encoding=encoding)
    with pytest.raises(DataError, match="compressed twice"):
        read(tmp_path / "x.zarr")


def test_sizes_are_those_of_the_standard_library() -> None:
    rng = np.random.default_rng(0)
    for size in (0, 1, 1000, 300_000):
        data = rng.integers(0, 3, size, dtype=np.uint8).tobytes()
        packed = {
            "gzip": gzip.compress(data) + gzip.compress(data),  # two members
            "zlib": zlib.compress(data),
            "bz2": bz2.compress(data),
            "lzma": lzma.compress(data),
        }
        for codec, content in packed.items():
            expected = 2 * size if codec == "gzip" else size
            small = codec in ("gzip", "zlib") and len(content) * 1032 <= 100 * 2**10 // 16
            assert unpacked_size(content, codec, 10**9) == (0 if small else expected), codec
        assert unpacked_size(CODECS["zstd"].encode(data), "zstd", 10**9) == size or not size
        assert unpacked_size(CODECS["lz4"].encode(data), "lz4", 10**9) == size


def test_a_zstd_frame_without_its_size_is_bounded_by_its_blocks() -> None:
    """A frame of blocks that repeat one byte: 4 bytes unpack to 128 KiB."""
    size, count = 2**17, 100
    block = ((size << 3) | (1 << 1)).to_bytes(3, "little") + b"\0"
    last = ((size << 3) | (1 << 1) | 1).to_bytes(3, "little") + b"\0"
    frame = (0xFD2FB528).to_bytes(4, "little") + bytes([0, 0x38]) + block * (count - 1) + last
    assert unpacked_size(frame, "zstd", 2**30) == count * size
    assert unpacked_size(frame, "zstd", 10 * size) > 10 * size
    assert len(CODECS["zstd"].decode(frame)) == count * size
