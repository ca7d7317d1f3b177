"""`stonet serve` as a process: it starts, answers, finishes what runs, and ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from helpers.paths import ROOT
from helpers.served import QUANTILES, Served, same
from helpers.shell import Shell


@contextmanager
def running(*words: str | Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its URL."""
    command = [sys.executable, "-m", "stonet", "serve", *map(str, words), "--port", "0", "--json"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield process, json.loads(line)["url"]
    finally:
        process.kill()
        process.communicate()


def fetch(url: str, content: dict | None = None, **headers: str) -> tuple[int, dict]:
    body = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_process_answers_and_finishes_what_runs(served: Served) -> None:
    """SIGTERM while a large field is computed: the answer is complete, and the process ends."""
    with running(served.folder, served.folder.parent / "data.nc") as (process, url):
        assert url.startswith("http://127.0.0.1:")
        status, document = fetch(f"{url}v1/forecast", {"quantiles": QUANTILES})
        assert status == 200
        same(document, served.model.predict(served.data, quantiles=QUANTILES))
        answers: list[tuple[int, dict]] = []
        size = {"size": [120, 150], "times": [f"+{k}min" for k in range(10, 200, 10)]}
        asking = threading.Thread(target=lambda: answers.append(fetch(f"{url}v1/field", size)))
        asking.start()
        while b"running 1" not in urllib.request.urlopen(f"{url}metrics").read():
            assert asking.is_alive() or answers
            if answers:
                break
        process.send_signal(signal.SIGTERM)
        asking.join(60)
        assert process.wait(60) == 0
        assert answers[0][0] == 200 and np.shape(answers[0][1]["values"]) == (19, 120, 150)
        assert process.stderr is not None and "Traceback" not in process.stderr.read()


def test_others_need_the_token_and_ctrl_c_ends_it(served: Served, tmp_path: Path) -> None:
    """The data are those of the training."""
    token = tmp_path / "token"
    token.write_text("an-example-of-a-token")
    words = (served.folder, "--host", "0.0.0.0", "--token-file", token)
    with running(*words) as (process, url):
        local = f"http://127.0.0.1:{url.rpartition(':')[2]}"
        assert fetch(f"{local}health/ready")[1]["status"] == "ready"
        assert fetch(f"{local}v1/model")[0] == 401
        headers = {"Authorization": "Bearer an-example-of-a-token"}
        assert fetch(f"{local}v1/model", **headers)[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_wrong_options_are_refused(
    served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stonet = Shell(capsys, monkeypatch)
    assert "--token-file" in stonet.refused("serve", served.folder, "--host", "0.0.0.0")
    assert "--token-file" in stonet.refused(
        "serve", served.folder, "--token-file", served.folder / "none"
    )
    assert "70000" in stonet.refused("serve", served.folder, "--port", "70000")
    assert "--follow" in stonet.refused("serve", served.folder, "wave", "--follow")
    stonet.refused("serve", served.folder / "nothing")
