"""Files that grow are followed; files that cannot be read leave everything as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.served import LIMITS, Served

from stonet.data.field import Field
from stonet.errors import UsageError
from stonet.io.read import read
from stonet.io.write import write
from stonet.serving.follow import Follower, check_followable, signature
from stonet.serving.service import Run, Service


def following(served: Served, path: Path) -> tuple[Service, Follower]:
    service = Service(Run.load(served.folder), read(path), LIMITS)

    def again() -> Field:
        return read(path)

    return service, Follower(service, str(path), again, seconds=0.01)


def test_new_rows_are_taken(served: Served, tmp_path: Path) -> None:
    path = tmp_path / "live.csv"
    write(served.data.between(0, 100), path)
    service, follower = following(served, path)
    assert not follower.look()
    write(served.data.between(0, 103), path)
    assert follower.look() and not follower.look()
    assert service.issue().time == served.data.times[102]


def test_a_damaged_file_changes_nothing(
    served: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "live.csv"
    write(served.data.between(0, 100), path)
    service, follower = following(served, path)
    whole = path.read_text()
    for content in ("", "nonsense\n1\n", whole[: len(whole) // 2].replace("u0", "v0")):
        path.write_text(content)
        assert not follower.look()
    path.unlink()
    assert not follower.look()
    assert "not taken" in caplog.text
    assert service.issue().time == served.data.times[99]


def test_the_watching_thread_ends(served: Served, tmp_path: Path) -> None:
    path = tmp_path / "live.csv"
    write(served.data.between(0, 100), path)
    service, follower = following(served, path)
    with follower:
        write(served.data.between(0, 101), path)
        while service.snapshot.number == 0:
            follower._thread.join(0.01)
    assert not follower._thread.is_alive()


def test_what_can_be_followed(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("x")
    for source in (tmp_path, tmp_path / "a.csv", tmp_path / "*.csv"):
        check_followable(str(source))
    assert len(signature(str(tmp_path / "*.csv"))) == len(signature(str(tmp_path))) == 2
    for source in ("wave", str(tmp_path / "nothing"), str(tmp_path / "*.nc")):
        with pytest.raises(UsageError):
            check_followable(source)
