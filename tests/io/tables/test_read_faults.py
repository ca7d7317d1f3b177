"""Invalid tables give an error that names the file and the line, within bounded memory."""

from __future__ import annotations

import gzip
import lzma

import numpy as np
import pandas as pd
import pytest

from stonet.data.field import Field
from stonet.errors import DataError, ResourceError, StonetError, UsageError
from stonet.io.read import read

HEAD = "station,time,lat,lon,v\n"
ROW = "a,2019-01-01,1,2,3\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a CSV table: it is empty"),
        (b"\n\n# only a remark\n", "is empty"),
        (HEAD.encode(), "has a header and no rows"),
        (b"just words\nand more\n", "has a single field"),
        (b"a,b,c\n1,2,3\n", "has no time column among 'a', 'b', 'c'"),
        (b"2019-01-01,0,1.5\n2019-01-01,1,1.5\n", "first line seems to hold values"),
        ((HEAD + ROW + "b,2019-01-01,1,2\n").encode(), "line 3 has 4 fields and the header 5"),
        ((HEAD + ROW + "b,2019-01-01,1,2,3,4\n").encode(), "line 3 has 6 fields"),
        ((HEAD + ROW + 'b"x,2019-01-01,1,2,3\n').encode(), "a quotation mark is opened"),
        ((HEAD + ROW).encode() + b"b,2019\0-01-01,1,2,3\n", "bytes that are not text"),
        (bytes(range(256)) * 20, "bytes that are not text"),
        (np.random.default_rng(0).bytes(5000), "is not a CSV table"),
        ((HEAD + ROW).encode("utf-16"), "is UTF-16"),
        ((HEAD + ROW).replace("\n", "\r").encode(), "end in CR only"),
        (b"PK\x03\x04" + bytes(100), "is a ZIP archive"),
        (gzip.compress((HEAD + ROW * 99).encode(), mtime=0)[:60], "cannot be read as a table"),
        (lzma.compress((HEAD + ROW * 99).encode())[:-20], "cannot be read as a table"),
        (HEAD.replace("v", "lat").encode() + ROW.encode(), "has columns 'lat' more than once"),
        (HEAD.replace(",v", ",").encode() + ROW.encode(), "has no column of values"),
        ((HEAD + "a,,1,2,3\n" + ROW).encode(), "line 2 has no time"),
        ((HEAD + ",2019-01-01,1,2,3\n").encode(), "line 2 has no station"),
        ((HEAD + "a,2019-01-01,,,3\n").encode(), "has no positions .* no table lists 'a'"),
        ((HEAD + "a,2019-01-01,north,2,3\n").encode(), r"'lat' has 'north' in row 2"),
        ((HEAD + "a,2019-01-01,91,2,3\n").encode(), "latitude must be in"),
        ((HEAD + "a,2019-01-01,1,2,1e99\n").encode(), "infinite or too large"),
        ((HEAD + "a,2019-01-01,1,2,\n").encode(), "no values to forecast"),
        (b"station;time;lat;lon;v\na;2019-01-01;1.5;2;1.234,5\n", "no values|'1.234,5'"),
    ],
)
def test_invalid_files_are_refused_by_name(tmp_path, content, message):
    (tmp_path / "bad.csv").write_bytes(content)
    with pytest.raises(DataError, match=rf"bad.csv'.*({message})"):
        read(tmp_path / "bad.csv")


def test_messages_are_short_even_with_long_names(tmp_path):
    names = ",".join(f"{'n' * 500}{number}" for number in range(1000))
    (tmp_path / "bad.csv").write_text(names + "\n" + ",".join("1" * 1000) + "\n")
    with pytest.raises(DataError) as caught:
        read(tmp_path / "bad.csv")
    assert len(str(caught.value)) < 1200


@pytest.mark.parametrize(
    ("line", "memory"),
    [(b"\n", "1M"), (b"\n", "100M"), (b" \n", "100M"), (b"#\n", "100M"), (b"x", "100M"),
     (ROW.encode(), "1M")],
)  # fmt: skip
@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_decompression_bombs_are_refused(tmp_path, monkeypatch, pack, line, memory):
    monkeypatch.setenv("STONET_MEMORY", memory)
    monkeypatch.setenv("STONET_CACHE", str(tmp_path))
    count = 18 * 2**20 // len(line)
    (tmp_path / "bomb.csv.gz").write_bytes(pack((HEAD + ROW).encode() + line * count))
    assert (tmp_path / "bomb.csv.gz").stat().st_size < 200_000
    with pytest.raises((ResourceError, DataError), match=r"bomb.csv.gz'"):
        read(tmp_path / "bomb.csv.gz")


def parquet(tmp_path, rows: int = 200):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(
        {
            "station": np.repeat(["a", "b"], rows // 2),
            "time": pd.date_range("2019", periods=rows // 2, freq="h", tz="UTC").tolist() * 2,
            "lat": np.repeat([1.0, 2.0], rows // 2),
            "lon": 3.0,
            "v": np.arange(rows, dtype=np.float64),
            "flags": [[1, 2]] * rows,
        }
    )
    frame.to_parquet(tmp_path / "t.parquet")
    return frame.drop(columns="flags")


def test_a_parquet_file_equals_its_dataframe(tmp_path):
    frame = parquet(tmp_path)
    expected = read(frame)
    field = read(tmp_path / "t.parquet")
    np.testing.assert_array_equal(field.values, expected.values)
    assert np.array_equal(field.times, expected.times)
    assert field.points == expected.points
    for index in (["station", "time"], ["time"]):
        frame.set_index(index).to_parquet(tmp_path / "i.parquet")
        np.testing.assert_array_equal(read(tmp_path / "i.parquet").values, expected.values)
    frame.set_index("time").rename_axis(None).to_parquet(tmp_path / "n.parquet")
    assert np.array_equal(read(tmp_path / "n.parquet").times, expected.times)
    frame.astype({"station": "category"}).to_parquet(tmp_path / "c.parquet")
    np.testing.assert_array_equal(read(tmp_path / "c.parquet").values, expected.values)


def test_the_size_of_a_parquet_file_is_checked_first(tmp_path, monkeypatch):
    parquet(tmp_path, rows=20_000)
    monkeypatch.setenv("STONET_MEMORY", "100k")
    with pytest.raises(ResourceError, match=r"t.parquet': (a row group unpacks to|its rows take)"):
        read(tmp_path / "t.parquet")


def test_a_missing_pyarrow_is_named(tmp_path, monkeypatch):
    parquet(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(UsageError, match=r"needs pyarrow: pip install 'stonet\[io\]'"):
        read(tmp_path / "t.parquet")


def mutated(original: bytes, generator: np.random.Generator) -> bytes:
    """The bytes with some changed, inserted or deleted."""
    changed = bytearray(original)
    how = generator.integers(4)
    for _ in range(int(generator.integers(1, 4))):
        at = int(generator.integers(len(changed)))
        match how:
            case 0:
                changed[at] = int(generator.integers(256))
            case 1:  # characters of tables, so that parsing gets further
                changed[at] = int(generator.choice(list(b'0123456789.-+,;:TZ"\n #eE')))
            case 2:
                changed[at:at] = generator.bytes(int(generator.integers(1, 20)))
            case _:
                del changed[at : at + int(generator.integers(1, 60))]
    return bytes(changed)


def survive(tmp_path, suffix: str, rounds: int, seed: int) -> int:
    """Read damaged files; returns how many still gave a Field."""
    generator = np.random.default_rng(seed)
    frame = parquet(tmp_path)
    if suffix == ".csv":
        frame.assign(label="x,y é").to_csv(tmp_path / "t.csv", index=False)
    original = (tmp_path / f"t{suffix}").read_bytes()
    good = 0
    for _ in range(rounds):
        (tmp_path / f"m{suffix}").write_bytes(mutated(original, generator))
        try:
            field = read(tmp_path / f"m{suffix}")
        except StonetError as error:
            assert f"m{suffix}" in str(error)
            assert "Type-check" not in str(error)
            continue
        assert isinstance(field, Field)
        assert np.isfinite(field.values[field.observed]).all()
        good += 1
    return good


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_damaged_tables_are_refused_or_read(tmp_path, suffix):
    good = survive(tmp_path, suffix, rounds=100, seed=0)
    assert 0 < good < 100  # the damage neither never nor always makes a file unreadable


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_many_damaged_tables_are_refused_or_read(tmp_path, suffix):
    assert 0 < survive(tmp_path, suffix, rounds=4000, seed=1) < 4000


def test_a_long_text_that_every_row_of_a_parquet_file_has_is_held_once(tmp_path, monkeypatch):
    """40,000 rows of one name of 20,000 characters would be 800 MB."""
    pa = pytest.importorskip("pyarrow")
    rows, name = 40_000, "A" * 20_000
    columns = {
        "station": pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), [name]),
        "time": pa.array(np.arange(rows).astype("M8[s]").astype("M8[ns]")),
        "lat": np.zeros(rows),
        "lon": np.zeros(rows),
        "v": np.arange(rows, dtype=np.float64),
    }
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table(columns), tmp_path / "x.parquet", store_schema=False)
    monkeypatch.setenv("STONET_MEMORY", "100M")
    before = pa.default_memory_pool().max_memory()
    field = read(tmp_path / "x.parquet")
    assert field.points.names == (name,) and field.values[:, 0, 0].tolist() == list(range(rows))
    assert pa.default_memory_pool().max_memory() - before < 100 * 2**20


def test_rows_beyond_the_memory_budget_are_refused_before_they_are_read(tmp_path, monkeypatch):
    """Two million equal rows take kilobytes in the file."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    zeros = np.zeros(2_000_000)
    columns = {"time": pa.array(zeros.astype("M8[ns]")), "lat": zeros, "lon": zeros, "v": zeros}
    parquet.write_table(pa.table(columns), tmp_path / "x.parquet", compression="zstd")
    monkeypatch.setenv("STONET_MEMORY", "20M")
    with pytest.raises(ResourceError, match=r"its rows take"):
        read(tmp_path / "x.parquet")
