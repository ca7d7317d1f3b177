"""Few computations at once, some wait, the others are refused; a slow one is given up."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from stonet.serving.gate import Gate
from stonet.serving.limits import Limits
from stonet.serving.metrics import Metrics
from stonet.serving.refusal import Refused


def test_as_many_run_and_wait_as_allowed() -> None:
    go_on, lock, most, now = threading.Event(), threading.Lock(), 0, 0

    def work(watch: object) -> int:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        go_on.wait(30)
        with lock:
            now -= 1
        return 7

    async def crowd() -> list[object]:
        gate = Gate(Limits(running=2, waiting=3))
        tasks = [asyncio.create_task(gate.run(work)) for _ in range(8)]
        while sum(task.done() for task in tasks) < 3:
            await asyncio.sleep(0)
        assert gate.running == 2 and gate.waiting == 3 and gate.refused == 3
        go_on.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert gate.running == gate.waiting == 0
        assert await gate.run(work) == 7
        gate.close()
        return list(results)

    results = asyncio.run(crowd())
    assert results.count(7) == 5 and most == 2
    for error in results:
        if error != 7:
            assert isinstance(error, Refused) and error.status == 503
            assert "Retry-After" in error.headers


def test_a_slow_computation_ends_at_its_next_part() -> None:
    parts = 0

    def work(watch) -> None:
        nonlocal parts
        while parts < 10_000:
            parts += 1
            watch()
            time.sleep(0.002)

    async def run() -> None:
        gate = Gate(Limits(seconds=0.05))
        with pytest.raises(Refused) as error:
            await gate.run(work)
        assert error.value.status == 503
        gate.close()

    asyncio.run(run())
    assert 1 < parts < 10_000


def test_errors_pass_and_make_place() -> None:
    def fail(watch: object) -> None:
        raise ZeroDivisionError

    async def run() -> None:
        gate = Gate(Limits(running=1, waiting=0))
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await gate.run(fail)
        assert gate.running == 0
        gate.close()

    asyncio.run(run())


def test_metrics_count_by_path_and_status() -> None:
    metrics = Metrics()
    for seconds in (0.02, 0.3, 20.0):
        metrics.add("/v1/forecast", 200, seconds)
    metrics.add("other", 404, 0.001)
    lines = metrics.text({"stonet_stations": ("Stations.", 12)}).splitlines()
    assert 'stonet_requests_total{path="/v1/forecast",status="200"} 3' in lines
    assert 'stonet_requests_total{path="other",status="404"} 1' in lines
    buckets = [line for line in lines if line.startswith('stonet_request_seconds_bucket{path="/v1')]
    counts = [int(line.rpartition(" ")[2]) for line in buckets]
    assert counts == sorted(counts) and counts[0] == 0 and counts[-1] == 3
    assert 'stonet_request_seconds_sum{path="/v1/forecast"} 20.320000' in lines
    assert "stonet_stations 12" in lines
