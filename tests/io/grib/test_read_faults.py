"""Damaged GRIB files, and a decoder that crashes, give an error of stonet."""

from __future__ import annotations

import os
import random
import signal

import numpy as np
import pytest
from helpers.grib_files import GRID, eccodes, message

from stonet.config import ReadConfig
from stonet.errors import DataError, StonetError, UsageError
from stonet.io.grib import eccodes_client
from stonet.io.grib.read import open_grib
from stonet.io.read import read


@pytest.fixture
def file(tmp_path):
    def write(*messages):
        path = tmp_path / "x.grib"
        path.write_bytes(b"".join(messages))
        return path

    return write


GOOD = message(GRID)
OLD = message(GRID, 1)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no GRIB message"),
        (b"\0" * 100, "no GRIB message"),
        (b"\0" * 9000 + GOOD, "blank bytes"),
        (b"HTXX99 " + GOOD, "expected 'GRIB'"),
        (GOOD + b"tail", "expected 'GRIB'"),
        (GOOD + GOOD[:60], "the file ends after 60"),
        (OLD[:-30], "the file ends"),
        (GOOD[:7] + b"\3" + GOOD[8:], "edition 3"),
        (GOOD[:-4] + b"7770", "does not end with '7777'"),
        (GOOD[:16] + b"\0\0\7\xff" + GOOD[20:], "section 1"),
        (GOOD[:16] + b"\0\0\0\x15\5" + GOOD[21:], "section 5 follows section 0"),
        (OLD[:8] + b"\0\0\x50" + OLD[11:], "section"),
        (OLD[:21] + b"\x0d" + OLD[22:], "the date 2019-13-1"),
        (GOOD[:28] + b"\0\1" + GOOD[30:], "the date 1-3-1"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_and_eccodes_prints_nothing(file, capfd, content, words):
    with pytest.raises(DataError, match=words) as error:
        read(file(content))
    assert "x.grib" in str(error.value) and not "".join(capfd.readouterr())


def test_blank_bytes_between_messages_are_skipped(file):
    assert len(read(file(GOOD, b"\0" * 50, message(GRID, dataTime=100))).times) == 2


def test_a_grid_larger_than_its_values_is_refused_before_it_is_allocated(file):
    wide = bytearray(OLD)
    grid = 8 + int.from_bytes(OLD[8:11], "big")
    wide[grid + 6 : grid + 10] = b"\xff\xfe\xff\xfe"
    with pytest.raises(DataError, match="points and"):
        read(file(bytes(wide)))
    constant = bytearray(message(np.zeros(12)))
    at = constant.find(b"\0\0\0\x48\3")  # section 3
    for octet in (6, 30, 34):
        constant[at + octet : at + octet + 4] = b"\0\xff\xff\xff"
    with pytest.raises(StonetError, match=r"x\.grib"):
        read(file(bytes(constant)))


def test_values_that_do_not_fit_their_grid_are_refused(file):
    mixed = bytearray(message(np.arange(20.0), 1, (5, 4), dataTime=100))
    grid = 8 + int.from_bytes(OLD[8:11], "big")
    mixed[grid : grid + 32] = OLD[grid : grid + 32]  # the grid of one, the values of the other
    with pytest.raises(DataError, match="20 values for 12 points"):
        read(file(OLD, bytes(mixed)))


def test_spherical_harmonics_are_refused(file):
    handle = eccodes.codes_grib_new_from_samples("sh_pl_grib2")
    with pytest.raises(DataError, match="spherical harmonics"):
        read(file(eccodes.codes_get_message(handle)))


def test_a_file_that_changes_is_noticed(file):
    (source,) = open_grib(file(GOOD), ReadConfig())
    file(GOOD, GOOD)
    with pytest.raises(DataError, match="changed while it was read"):
        source.frames(0, 1)


def test_mutated_files_give_a_field_or_an_error_of_stonet(file):
    generator = random.Random(7)
    originals = [message(GRID, packingType="grid_ccsds"), GOOD, OLD + GOOD]
    outcomes = set()
    for _ in range(150):
        mutant = bytearray(generator.choice(originals))
        for _ in range(generator.choice((1, 1, 3))):
            mutant[generator.randrange(len(mutant))] = generator.choice(
                (0, 255, generator.randrange(256))
            )
        try:
            read(file(bytes(mutant)))
            outcomes.add("read")
        except StonetError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


# The process that runs ecCodes


def test_a_crash_or_a_hang_is_an_error_and_the_next_file_is_read(file, monkeypatch):
    path = file(GOOD)
    read(path)
    process = eccodes_client.SANDBOX._process
    monkeypatch.setattr(eccodes_client, "TIMEOUT", 0.2)
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(DataError, match="crashed or took too long"):
        read(path)
    monkeypatch.undo()
    assert process.poll() is not None
    assert read(path).channels == ("t2m",)
    process = eccodes_client.SANDBOX._process
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert read(path).channels == ("t2m",)


def test_a_missing_eccodes_is_named(file, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'stonet\[grib\]'"):
        read(file(GOOD))
