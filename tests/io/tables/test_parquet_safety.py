"""What a Parquet file unpacks to is known from its pages, whatever its metadata state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stonet.errors import DataError, ResourceError
from stonet.io.read import read
from stonet.io.tables.parquet_safety import page_sizes, read_struct

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def zigzag(number: int) -> bytes:
    """An integer as Thrift's compact protocol writes it."""
    rest, parts = (number << 1) ^ (number >> 63), bytearray()
    while rest > 127:
        parts.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*parts, rest])


def table(rows: int, text: str = "a") -> Any:
    times = np.arange(rows).astype("M8[s]").astype("M8[ns]")
    columns = {"station": [text] * rows, "time": times, "v": np.arange(rows, dtype=np.float64)}
    return pa.table(columns | {"lat": np.zeros(rows), "lon": np.zeros(rows)})


@pytest.mark.parametrize("options", [
    {}, {"use_dictionary": False}, {"data_page_version": "2.0"}, {"compression": "zstd"},
    {"row_group_size": 700}, {"data_page_size": 500},
])  # fmt: skip
def test_pages_of_an_honest_file_have_the_size_that_its_metadata_state(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    path, rows = tmp_path / "x.parquet", 5000
    pq.write_table(table(rows), path, **options)
    metadata = pq.read_metadata(path)
    for name in ("station", "v"):
        stated = []
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            columns = [group.column(i) for i in range(group.num_columns)]
            stated += [c.total_uncompressed_size for c in columns if c.path_in_schema == name]
        found = page_sizes(path, metadata, {name}).largest_group
        headers = 200 * rows / 50  # of pages, which the metadata count too
        assert max(stated) - headers < found < max(stated)


@pytest.mark.parametrize("number", [0, 1, -1, 63, 64, -65, 2**31 - 1, -(2**31)])
def test_integers_are_read_as_thrift_writes_them(number: int) -> None:
    assert read_struct(b"\x15" + zigzag(number) + b"\x00") == ({1: number}, 2 + len(zigzag(number)))


def test_structures_without_an_end_or_too_deep_are_refused() -> None:
    with pytest.raises(IndexError):
        read_struct(b"\x15")
    with pytest.raises(ValueError, match="deep"):
        read_struct(b"\x1c" * 1000)
    with pytest.raises(ValueError, match="long"):
        read_struct(b"\x19\xf5" + b"\xff" * 20)


def test_plain_pages_of_a_repeated_text_are_refused_before_they_are_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4,000 rows of one text of 20,000 characters: 80 MB in a file of some kilobytes."""
    path = tmp_path / "x.parquet"
    options = {"use_dictionary": False, "compression": "zstd", "write_statistics": False}
    pq.write_table(table(4000, "A" * 20_000), path, **options)
    assert path.stat().st_size < 200_000
    monkeypatch.setenv("STONET_MEMORY", "10M")
    before = pa.total_allocated_bytes()
    with pytest.raises(ResourceError, match="a row group unpacks to 80"):
        read(path)
    assert pa.total_allocated_bytes() - before < 10**6


def test_a_page_that_declares_more_than_the_metadata_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.parquet"
    options = {"use_dictionary": False, "compression": "zstd", "write_statistics": False}
    pq.write_table(table(4000), path, **options)
    data = bytearray(path.read_bytes())
    column = pq.read_metadata(path).row_group(0).column(2)
    place = column.data_page_offset
    header, _ = read_struct(bytes(data[place : place + 1000]))
    old, new = zigzag(header[2]), zigzag(2**20 - 1)
    assert len(old) == len(new)
    at = data.index(b"\x15" + old, place)
    data[at + 1 : at + 1 + len(new)] = new
    path.write_bytes(bytes(data))
    monkeypatch.setenv("STONET_MEMORY", "500k")
    with pytest.raises(ResourceError, match=r"a row group unpacks to 1\.16 MB"):
        read(path, variables="v")
    data[place : place + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(bytes(data))
    with pytest.raises(DataError, match="no valid header"):
        read(path, variables="v")


def test_texts_stored_as_differences_are_read_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each text repeats the one before it: 4,000 texts of 20,000 characters in 30 kB of pages."""
    path = tmp_path / "x.parquet"
    encodings = dict.fromkeys(("time", "v", "lat", "lon"), "PLAIN")
    pq.write_table(
        table(4000, "A" * 20_000),
        path,
        use_dictionary=False,
        column_encoding=encodings | {"station": "DELTA_BYTE_ARRAY"},
        write_statistics=False,
    )
    monkeypatch.setenv("STONET_MEMORY", "10M")
    pool = pa.default_memory_pool()
    before = pool.max_memory()
    assert len(read(path).times) == 4000
    assert pool.max_memory() - before < 40 * 2**20


def test_columns_of_long_fixed_bytes_are_not_read(tmp_path: Path) -> None:
    blob = pa.array([b"x" * 10_000] * 50, pa.binary(10_000))
    pq.write_table(table(50).append_column("blob", blob), tmp_path / "x.parquet")
    assert read(tmp_path / "x.parquet").channels == ("v",)
