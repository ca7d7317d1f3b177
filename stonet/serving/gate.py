"""Gate: few computations run at once, some wait, and the others are refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from stonet.serving.issue import Watch
from stonet.serving.limits import Limits
from stonet.serving.refusal import Refused

GRACE = 2.0  # seconds that a computation has to notice that its time is over
Result = TypeVar("Result")


class Gate:
    """Runs computations in threads.

    Args:
        limits: how many run and wait, and for how long.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.waiting = self.running = self.refused = 0
        self._free = asyncio.Semaphore(limits.running)
        self._pool = ThreadPoolExecutor(limits.running, thread_name_prefix="stonet-serve")

    async def run(self, work: Callable[[Watch], Result]) -> Result:
        """The result of a computation.

        Args:
            work: is given a function to call between its parts, which raises once its time is over.

        Raises:
            Refused: with status 503, if too many wait, or if it took too long.
        """
        await self._enter()
        self.running += 1
        ends = time.monotonic() + self.limits.seconds

        def watch() -> None:
            if time.monotonic() > ends:
                raise self._slow()

        future = asyncio.get_running_loop().run_in_executor(self._pool, work, watch)
        future.add_done_callback(self._leave)
        try:
            return await asyncio.wait_for(
                asyncio.shield(future), max(0.0, ends - time.monotonic()) + GRACE
            )
        except TimeoutError:
            raise self._slow() from None

    def close(self) -> None:
        """End the threads; what runs is finished."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    async def _enter(self) -> None:
        """Wait for a free place."""
        limits = self.limits
        if self.running + self.waiting >= limits.running + limits.waiting:
            self.refused += 1
            raise Refused(
                503,
                f"The service is busy: {self.running} computations run and {self.waiting} wait. "
                "Try again in a few seconds.",
                {"Retry-After": "2"},
            )
        self.waiting += 1
        try:
            async with asyncio.timeout(limits.seconds):
                await self._free.acquire()
        except TimeoutError:
            raise self._slow() from None
        finally:
            self.waiting -= 1

    def _leave(self, future: asyncio.Future[Result]) -> None:
        """Make place, also after the answer was given up."""
        self.running -= 1
        self._free.release()
        if not future.cancelled():
            future.exception()  # it was retrieved, if anybody still waits for it

    def _slow(self) -> Refused:
        self.refused += 1
        return Refused(
            503,
            f"The computation took more than {self.limits.seconds:g} s and was given up. Ask for "
            "fewer sites or times, or try again later.",
            {"Retry-After": "5"},
        )
