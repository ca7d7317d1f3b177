"""HTTP connections: few at once, and none that neither asks nor reads.

uvicorn waits without an end for a request line that comes byte by byte, and for a client that does
not read its answer. Here a connection is closed if nothing has happened on it for two periods.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

from stonet.serving.numbers import encode
from stonet.serving.refusal import document

PERIOD = 15.0  # seconds
MOST = 256  # connections at once; systems allow a process 1024 files or more
BUSY = encode(document("Refused", "The service has too many connections. Try again in a second."))
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(BUSY)
) + BUSY


class WatchedProtocol(H11Protocol):
    """A connection of uvicorn that is closed if its client makes no progress."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, or refuse it.

        Args:
            transport: of the connection.
        """
        super().connection_made(transport)
        self._answered, self._unsent = -1, 0
        self._timer = self.loop.call_later(PERIOD, self._look)
        if len(self.connections) > MOST:
            transport.write(REFUSAL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection.

        Args:
            exc: why it was lost; None: it ended.
        """
        self._timer.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        """End the connection if nothing happened since the last look."""
        unsent = self.transport.get_write_buffer_size()
        idle = self.cycle is None or self.cycle.response_complete
        same = self._answered == id(self.cycle) and unsent >= self._unsent
        if idle and same:
            self.transport.abort()
            return
        self._answered, self._unsent = id(self.cycle) if idle else -1, unsent
        self._timer = self.loop.call_later(PERIOD, self._look)
