"""The address of the service: its socket, its URL, and the token of a public one."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path

from stonet.errors import ResourceError, UsageError

BACKLOG = 128
MIN_TOKEN, MAX_TOKEN = 16, 4096  # characters


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at an address.

    Args:
        host: name or number.
        port: 0: any free one.

    Raises:
        UsageError: if the host is unknown.
        ResourceError: if the address is in use or not allowed.
    """
    if not 0 <= port <= 65535:
        raise UsageError(f"--port {port}: expected 0 (any free port) to 65535.")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"--host {host}: {error}. Give a name or number of this machine."
        ) from None
    family, kind, protocol, _, address = found[0]
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        raise ResourceError(
            f"Cannot listen at {host}:{port} ({error.strerror}). Choose another --port; 0 takes a "
            "free one."
        ) from None
    return opened


def url_of(opened: socket.socket) -> str:
    """The URL under which a listening socket is reached from this machine.

    Args:
        opened: the socket.
    """
    host, port = opened.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = socket.gethostname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    Args:
        host: name or number.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def read_token(path: Path) -> str:
    """The token in the first line of a file.

    Args:
        path: of the file.

    Raises:
        UsageError: if there is no such file, or the token is short or not plain.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_TOKEN + 2).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--token-file {path}: {error}. Give a file with one plain line."
        ) from None
    if not MIN_TOKEN <= len(text) <= MAX_TOKEN or not text.isprintable() or " " in text:
        raise UsageError(
            f"--token-file {path}: expected one line of {MIN_TOKEN} to {MAX_TOKEN} plain "
            f"characters without spaces, got {len(text)}. Make one: openssl rand -hex 32 > {path}"
        )
    return text
