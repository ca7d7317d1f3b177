"""Clients that hold connections without asking or reading do not keep others out."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
import uvicorn

from stonet.serving import protocol

SIZE = 30_000_000  # bytes; more than the buffers of sockets hold
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def application(scope: dict, receive: Callable, send: Callable) -> None:
    body = b"x" * (SIZE if scope["path"] == "/large" else 5)
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def with_server(ask: Callable[[uvicorn.Server, int], Awaitable[None]]) -> None:
    """Run requests against a server in this process."""

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as opened:
            config = uvicorn.Config(
                application,
                http=protocol.WatchedProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",
            )
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server._serve([opened]))
            try:
                await asyncio.wait_for(ask(server, opened.getsockname()[1]), 60)
            finally:
                server.should_exit = server.force_exit = True
                await serving

    asyncio.run(run())


@asynccontextmanager
async def connected(port: int, request: bytes = b"") -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**16)
    try:
        writer.write(request)
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def status(port: int) -> int:
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    async with connected(port, request) as (reader, _):
        return int((await reader.read()).split()[1])


async def no_connection(server: uvicorn.Server) -> None:
    while server.server_state.connections:
        await asyncio.sleep(0.01)


def test_an_unfinished_request_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though a byte comes again and again."""
    monkeypatch.setattr(protocol, "PERIOD", 0.05)

    async def ask(server: uvicorn.Server, port: int) -> None:
        async with connected(port, b"GET / HTTP/1.1\r\nHost: ") as (_, writer):
            while not server.server_state.connections:
                await asyncio.sleep(0)
            while server.server_state.connections:
                writer.write(b"x")
                await asyncio.sleep(0.01)
        assert await status(port) == 200

    with_server(ask)


def test_an_answer_that_nobody_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "PERIOD", 0.05)

    async def ask(server: uvicorn.Server, port: int) -> None:
        async with connected(port, b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            while not server.server_state.total_requests:
                await asyncio.sleep(0)
            await no_connection(server)

    with_server(ask)


def test_a_slow_reader_gets_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "PERIOD", 0.2)
    request = b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

    async def ask(server: uvicorn.Server, port: int) -> None:
        received = 0
        async with connected(port, request) as (reader, _):
            while part := await reader.read(2**16):
                received += len(part)
                await asyncio.sleep(0.001)
        assert received > SIZE

    with_server(ask)


def test_too_many_connections_are_refused_with_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MOST", 2)

    async def ask(server: uvicorn.Server, port: int) -> None:
        async with connected(port), connected(port):
            while len(server.server_state.connections) < 2:
                await asyncio.sleep(0)
            async with connected(port) as (reader, _):
                head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503") and json.loads(body)["error"]["message"]
        await no_connection(server)
        assert await status(port) == 200

    with_server(ask)
