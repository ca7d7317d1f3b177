"""Guard: what is checked of every request before it is answered, and what every answer carries.

Names of the host (against DNS rebinding), the origin of a page that sends data (against forged
requests), the token, the number of requests at once, and the body: its size, the time in which it
arrives, its type, and that it is strict JSON.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stonet.serving.limits import Limits
from stonet.serving.metrics import Metrics
from stonet.serving.numbers import encode
from stonet.serving.refusal import Refused, document
from stonet.serving.strict_json import parse_json

LOOPBACK = ("127.0.0.1", "localhost", "::1")
PUBLIC = ("/", "/health/live", "/health/ready")  # they need no token, nor do files of the page
STATIC = "/static/"
POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; font-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
SAME_SITE = (None, "same-origin", "none")  # Sec-Fetch-Site of requests that are answered
CLIENT_GONE = 499  # of metrics only: no answer was read
SAFE_METHODS = ("GET", "HEAD")


@dataclass(frozen=True)
class Policy:
    """Who may ask.

    Args:
        hosts: names that the Host header may have; None: any, where a token is required.
        token: that requests of data must carry; None: none is required.
        at_once: requests in work.
    """

    hosts: Sequence[str] | None = LOOPBACK
    token: str | None = None
    at_once: int = 128


class Guard:
    """Middleware around the application.

    Args:
        app: that answers what is not refused.
        policy: who may ask.
        limits: of a body.
        metrics: where requests are counted.
    """

    def __init__(self, app: ASGIApp, policy: Policy, limits: Limits, metrics: Metrics) -> None:
        self.app, self.policy, self.limits, self.metrics = app, policy, limits, metrics
        self.now = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it.

        Args:
            scope: of the request.
            receive: gives the body.
            send: takes the answer.
        """
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008})
            return
        started, status = time.monotonic(), 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            async with asyncio.timeout(self.limits.seconds):  # a client must read its answer
                await send(message)

        self.now += 1
        try:
            self._check(scope)
            body = await self._body(scope, receive)
            await self.app(scope, _replayed(body, receive), answer)
        except Refused as refused:
            content = encode(document("Refused", str(refused)))
            response = Response(content, refused.status, refused.headers, "application/json")
            await response(scope, receive, answer)
        except TimeoutError:  # the server closes a connection with an incomplete answer
            status = CLIENT_GONE
        finally:
            self.now -= 1
            path = getattr(scope.get("route"), "path", "other")
            self.metrics.add(path, status, time.monotonic() - started)

    def _check(self, scope: Scope) -> None:
        """Refuse by the headers alone."""
        headers, path = Headers(scope=scope), str(scope["path"])
        if self.now > self.policy.at_once:
            message = f"The service is busy: {self.now} requests at once. Try again in a second."
            raise Refused(503, message, {"Retry-After": "1"})
        host, hosts = headers.get("host", ""), self.policy.hosts
        if hosts is not None and host_name(host) not in hosts:
            raise Refused(
                421,
                f"The host '{host[:80]}' is not served; expected {' or '.join(hosts)}. Open the "
                "address that `stonet serve` printed.",
            )
        self._check_origin(headers, host, str(scope["method"]))
        public = path in PUBLIC or path.startswith(STATIC)
        if self.policy.token is not None and not public:
            given = headers.get("authorization", "")
            expected = f"Bearer {self.policy.token}"
            if not hmac.compare_digest(given.encode(), expected.encode()):
                raise Refused(
                    401,
                    "This service needs its token; send the header 'Authorization: Bearer TOKEN'.",
                    {"WWW-Authenticate": "Bearer"},
                )

    @staticmethod
    def _check_origin(headers: Headers, host: str, method: str) -> None:
        """Refuse requests that pages of other sites make."""
        origin = headers.get("origin")
        foreign = origin is not None and origin.partition("://")[2] != host
        if foreign or (
            method not in SAFE_METHODS and headers.get("sec-fetch-site") not in SAME_SITE
        ):
            raise Refused(403, "Pages of other sites may not use this service.")

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """The body of a request, once all of it has arrived and it is strict JSON."""
        headers, most = Headers(scope=scope), self.limits.body_bytes
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or len(length) > 18:
            raise Refused(400, "The header Content-Length is no number.")
        if int(length) > most:
            raise _too_large(most)
        try:
            body = await asyncio.wait_for(_read(receive, most), self.limits.upload_seconds)
        except TimeoutError:
            raise Refused(
                408, f"The body did not arrive within {self.limits.upload_seconds:g} s."
            ) from None
        if scope["method"] == "POST":
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                raise Refused(
                    415,
                    f"The body has the type '{kind[:80]}'; expected JSON with the header "
                    "'Content-Type: application/json'.",
                )
            await asyncio.to_thread(parse_json, body, self.limits.depth)
        return body


def host_name(host: str) -> str:
    """The name in a Host header, without the port.

    Args:
        host: such as "localhost:8000" or "[::1]:8000".
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


async def _read(receive: Receive, most: int) -> bytes:
    """All of the body."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "The connection ended before the body did.")
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise _too_large(most)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """As `receive`, with a body that was read before."""
    waiting = [body]

    async def again() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return again


def _too_large(most: int) -> Refused:
    return Refused(
        413,
        f"The body is larger than {most:,} bytes. Send it in several requests.",
        {"Connection": "close"},
    )
