"""A helper process replies, and its crashes and timeouts are errors that it does not survive."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stonet.errors import ResourceError
from stonet.system import sandbox
from stonet.system.sandbox import CrashError, Sandbox, StartError

WORKER = """
import os, time
from stonet.system.sandbox import serve

def handle(content, blocks):
    if content["task"] == "crash":
        os._exit(11)
    if content["task"] == "hang":
        time.sleep(60)
    if content["task"] == "print":
        os.write(1, b"not a reply")
    return {"pid": os.getpid()}, [block[::-1] for block in blocks]

serve(lambda: handle, 8 * 2**30)
"""


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    (tmp_path / "reversing_worker.py").write_text(WORKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    client = Sandbox("reversing_worker")
    yield client
    client.stop()


def test_one_process_replies_to_all_requests(worker: Sandbox) -> None:
    first, blocks = worker.request({"task": "reply"}, [b"abc", b"", b"x" * 10**6], timeout=30.0)
    assert blocks == [b"cba", b"", b"x" * 10**6] and first["pid"] != os.getpid()
    assert worker.request({"task": "print"}, timeout=30.0) == (first, [])


@pytest.mark.parametrize(
    ("task", "error", "timeout"), [("crash", CrashError, 30.0), ("hang", TimeoutError, 0.2)]
)
def test_a_crash_or_a_timeout_is_an_error_and_the_process_is_replaced(
    worker: Sandbox, task: str, error: type[Exception], timeout: float
) -> None:
    first, _ = worker.request({"task": "reply"}, timeout=30.0)
    with pytest.raises(error):
        worker.request({"task": task}, timeout=timeout)
    second, _ = worker.request({"task": "reply"}, timeout=30.0)
    assert first["pid"] != second["pid"]


def test_a_reply_beyond_the_memory_budget_is_refused(
    worker: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STONET_MEMORY", "1000")
    with pytest.raises(ResourceError, match="STONET_MEMORY"):
        worker.request({"task": "reply"}, [bytes(2000)], timeout=30.0)


def test_a_process_that_does_not_start_is_an_error() -> None:
    with pytest.raises(StartError):
        Sandbox("no_such_module").request({}, timeout=30.0)


MALFORMED = [b"", b"{}\n", b"[1]\n", b'{"sizes": [-1]}\n', b'{"sizes": [9]}\nx']


@pytest.mark.parametrize("reply", MALFORMED)
def test_a_malformed_reply_counts_as_a_crash(monkeypatch: pytest.MonkeyPatch, reply: bytes) -> None:
    code = f"import sys; sys.stdout.buffer.write({reply!r})"
    monkeypatch.setattr(sandbox, "PYTHON", (sys.executable, "-c", code))
    with pytest.raises(StartError) as error:
        Sandbox("unused").request({}, timeout=30.0)
    assert isinstance(error.value.__cause__, CrashError)
