"""Hosts, origins, tokens, slow bodies, too many requests, and the headers of every answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from fastapi.testclient import TestClient
from helpers.served import ADDRESS, LIMITS, Served, make_client

from stonet.errors import ResourceError, UsageError
from stonet.serving.address import is_loopback, listen, read_token, url_of
from stonet.serving.guard import Guard, Policy, host_name
from stonet.serving.limits import Limits
from stonet.serving.metrics import Metrics

TOKEN = "0123456789abcdef"
DATA = ("/v1/model", "/v1/stations", "/metrics", "/openapi.json", "/v1/coast")


@pytest.fixture(scope="module")
def secured(served: Served) -> Iterator[TestClient]:
    with make_client(served, None, Policy(None, TOKEN)) as found:
        yield found


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "evil.example:8000",
        "",
        "[::2]:80",
        "127.0.0.2",
        "LOCALHOST.evil:1",
    ],
)
def test_other_hosts_are_refused(client: TestClient, host: str) -> None:
    assert client.get("/v1/model", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8000", "localhost:9", "LocalHost", "[::1]:8000", "127.0.0.1"]
)
def test_this_machine_is_served(client: TestClient, host: str) -> None:
    assert client.get("/health/live", headers={"Host": host}).status_code == 200


def test_names_of_hosts() -> None:
    hosts = ("localhost:8000", "localhost", "[::1]:8000", "[::1]", "A.B:1")
    assert [host_name(host) for host in hosts] == ["localhost", "localhost", "::1", "::1", "a.b"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_pages_of_other_sites_are_refused(client: TestClient, headers: dict[str, str]) -> None:
    assert client.post("/v1/forecast", json={}, headers=headers).status_code == 403


def test_the_page_itself_is_served(client: TestClient) -> None:
    headers = {"Origin": ADDRESS, "Sec-Fetch-Site": "same-origin"}
    assert client.post("/v1/forecast", json={"times": ["+1h"]}, headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/v1/model", "/nothing", "/health/live"])
def test_every_answer_carries_the_policy(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy and "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "server" not in headers and "access-control-allow-origin" not in headers


def test_files_of_the_page(client: TestClient) -> None:
    found = client.get("/")
    assert found.status_code == 200 and found.headers["content-type"].startswith("text/html")
    script = client.get("/static/app.js")
    assert script.text == "'use strict';"
    assert script.headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize("path", DATA)
@pytest.mark.parametrize(
    "given",
    [
        "",
        "Bearer",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"bearer {TOKEN}",
        TOKEN,
        "Bearer é",
    ],
)
def test_data_need_the_token(secured: TestClient, path: str, given: str) -> None:
    headers = {"Authorization": given.encode("latin-1")} if given else {}
    answer = secured.get(path, headers=headers)
    assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", DATA)
def test_the_token_opens_the_service_under_any_name(secured: TestClient, path: str) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Host": "service.example"}
    assert secured.get(path, headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/health/live", "/health/ready"])
def test_health_needs_no_token(secured: TestClient, path: str) -> None:
    assert secured.get(path).status_code == 200


Receive = Callable[[], Awaitable[dict]]


def through_guard(receive: Receive, limits: Limits = LIMITS, **scope: object) -> int:
    """The status of a request to an application that answers 200."""

    async def app(scope: object, receive: object, send: Callable) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    sent: list[dict] = []

    async def send(message: dict) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    whole = {"type": "http", "method": "POST", "path": "/v1/forecast", "headers": headers} | scope
    asyncio.run(Guard(app, Policy(), limits, Metrics())(whole, receive, send))
    return int(sent[0]["status"])


def test_a_body_that_never_arrives_is_given_up() -> None:
    async def receive() -> dict:
        await asyncio.sleep(60)
        return {}

    assert through_guard(receive, Limits(upload_seconds=0.02)) == 408


def test_a_body_without_an_end_is_given_up() -> None:
    async def receive() -> dict:
        return {"type": "http.request", "body": b" " * 1000, "more_body": True}

    assert through_guard(receive) == 413


@pytest.mark.parametrize(
    ("length", "status"), [("x", 400), ("-5", 400), ("9" * 30, 400), ("999999999", 413)]
)
def test_the_length_is_checked_before_the_body(length: str, status: int) -> None:
    async def receive() -> dict:
        raise AssertionError("the body must not be read")

    headers = [(b"host", b"localhost"), (b"content-length", length.encode())]
    assert through_guard(receive, headers=headers) == status


def test_an_answer_needs_a_whole_body() -> None:
    async def receive() -> dict:
        return {"type": "http.disconnect"}

    assert through_guard(receive) == 400


def test_too_many_requests_at_once_are_refused() -> None:
    """While as many as allowed are in work."""
    statuses: list[int] = []

    async def crowd() -> None:
        go_on = asyncio.Event()

        async def app(scope: object, receive: object, send: Callable) -> None:
            await go_on.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})

        async def send(message: dict) -> None:
            if "status" in message:
                statuses.append(message["status"])

        async def receive() -> dict:
            return {"type": "http.request", "body": b""}

        guard = Guard(app, Policy(at_once=3), LIMITS, Metrics())
        scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")]}
        tasks = [asyncio.create_task(guard(scope, receive, send)) for _ in range(5)]
        while len(statuses) < 2:
            await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(*tasks)

    asyncio.run(crowd())
    assert sorted(statuses) == [200, 200, 200, 503, 503]


def test_a_token_is_one_plain_line(tmp_path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    assert read_token(path) == TOKEN
    for bad in ("", "short", "two words of a token", "a" * 5000, f"{TOKEN}\n{TOKEN}", "é" * 20):
        path.write_text(bad)
        with pytest.raises(UsageError):
            read_token(path)
    with pytest.raises(UsageError):
        read_token(tmp_path / "nothing")


def test_addresses() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.0.1", "example.org")))
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        assert url_of(first) == f"http://127.0.0.1:{port}/"
        with pytest.raises(ResourceError):
            listen("127.0.0.1", port)
    for host, port in (("nowhere.invalid", 0), ("127.0.0.1", 70000)):
        with pytest.raises(UsageError):
            listen(host, port)
