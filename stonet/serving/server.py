"""The process: uvicorn on one socket until SIGTERM or Ctrl-C; running requests are finished."""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI

from stonet.serving.protocol import WatchedProtocol

KEEP_ALIVE = 15  # seconds that an idle connection stays open
MAX_HEADERS = 32_768  # bytes of a request line and headers


def run(app: FastAPI, opened: socket.socket, finish_seconds: float) -> None:
    """Serve until the process is told to stop.

    Args:
        app: the application.
        opened: a listening socket.
        finish_seconds: that running requests may still take at the end.
    """
    config = uvicorn.Config(
        app,
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        http=WatchedProtocol,
        ws="none",
        h11_max_incomplete_event_size=MAX_HEADERS,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=int(finish_seconds) + 1,
    )
    try:
        uvicorn.Server(config).run(sockets=[opened])
    except KeyboardInterrupt:  # uvicorn raises the signal again once it has stopped
        return
