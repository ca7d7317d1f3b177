"""No request, however hostile, is answered with a 5xx or without a message."""

from __future__ import annotations

import json
import math

import pytest
from fastapi.testclient import TestClient
from helpers.served import LIMITS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stonet.serving.refusal import Refused
from stonet.serving.strict_json import parse_json

JSON = {"Content-Type": "application/json"}
POSTS = ("/v1/forecast", "/v1/field", "/v1/observations")
DEEP = b'{"sites":' + b"[" * 5000 + b"]" * 5000 + b"}"
NOT_JSON = {
    "nan": b'{"quantiles": [NaN]}',
    "infinity": b'{"sites": [[1e999, 0]]}',
    "negative infinity": b'{"sites": [[-Infinity, 0]]}',
    "twice": b'{"times": ["+1h"], "times": ["+2h"]}',
    "twice, deeper": b'{"region": {"lat": [0, 1], "lat": [1, 2], "lon": [0, 1]}}',
    "deep": DEEP,
    "deep, without an end": b"[" * 50_000,
    "utf-8": b'{"names": ["\xff"]}',
    "utf-16": '{"times": null}'.encode("utf-16"),
    "half a pair": b'{"sites": ["\\ud800"]}',
    "half a pair, in a key": b'{"\\uDC00": 1}',
    "empty": b"",
    "two": b"{} {}",
    "truncated": b'{"sites": [[1, 2]',
    "open text": b'{"sites": ["' + b"\\\\\\" * 1000,
    "digits": b'{"size": [' + b"9" * 5000 + b", 2]}",
    "comment": b"{} // none",
}
NOT_FITTING: list[tuple[str, object]] = [
    *[(path, content) for path in POSTS for content in ([], "text", 3, None, True, [{}])],
    *[(path, {"unknown": 1}) for path in POSTS],
    ("/v1/forecast", {"sites": []}),
    ("/v1/forecast", {"sites": [[1]]}),
    ("/v1/forecast", {"sites": [[1, 2, 3]]}),
    ("/v1/forecast", {"sites": [[91, 0]]}),
    ("/v1/forecast", {"sites": [[0, 361]]}),
    ("/v1/forecast", {"sites": [["1", "2"]]}),
    ("/v1/forecast", {"sites": [[True, False]]}),
    ("/v1/forecast", {"sites": [[None, 0]]}),
    ("/v1/forecast", {"sites": [[1e308, -1e308]]}),
    ("/v1/forecast", {"sites": {"lat": 1, "lon": 2}}),
    ("/v1/forecast", {"sites": ["/etc/passwd"]}),
    ("/v1/forecast", {"sites": ["sites.csv"]}),
    ("/v1/forecast", {"sites": ["grid:0.0001"]}),
    ("/v1/forecast", {"names": ["a"]}),
    ("/v1/forecast", {"sites": [[1, 2]], "names": ["a", "b"]}),
    ("/v1/forecast", {"times": []}),
    ("/v1/forecast", {"times": ["+1h", "+1h"]}),
    ("/v1/forecast", {"times": ["+2h", "+1h"]}),
    ("/v1/forecast", {"times": ["+0h"]}),
    ("/v1/forecast", {"times": ["+1000h"]}),
    ("/v1/forecast", {"times": ["-1h"]}),
    ("/v1/forecast", {"times": ["+" + "9" * 60 + "d"]}),
    ("/v1/forecast", {"times": ["tomorrow"]}),
    ("/v1/forecast", {"times": ["NaT"]}),
    ("/v1/forecast", {"times": ["99999-01-01"]}),
    ("/v1/forecast", {"times": ["2020-10-21T00:00+02:00"]}),
    ("/v1/forecast", {"times": [3600]}),
    ("/v1/forecast", {"times": ["+1h" * 100]}),
    ("/v1/forecast", {"issue_time": "1990"}),
    ("/v1/forecast", {"issue_time": "2100"}),
    ("/v1/forecast", {"issue_time": "+1h"}),
    ("/v1/forecast", {"issue_time": ""}),
    ("/v1/forecast", {"quantiles": []}),
    ("/v1/forecast", {"quantiles": [0.0, 1.0]}),
    ("/v1/forecast", {"quantiles": [0.9, 0.1]}),
    ("/v1/forecast", {"quantiles": [1e-9]}),
    ("/v1/forecast", {"quantiles": ["0.5"]}),
    ("/v1/forecast?format=exe", {}),
    ("/v1/field", {"channel": "nothing"}),
    ("/v1/field", {"size": [1, 1]}),
    ("/v1/field", {"size": [-5, 10]}),
    ("/v1/field", {"size": [2.5, 4]}),
    ("/v1/field", {"size": [10]}),
    ("/v1/field", {"region": {}}),
    ("/v1/field", {"region": {"x": [0, 1], "y": [0, 1]}}),
    ("/v1/field", {"region": {"lat": [10, 0], "lon": [0, 10]}}),
    ("/v1/field", {"region": {"lat": [0, 100], "lon": [0, 10]}}),
    ("/v1/field", {"region": {"lat": [0, 10], "lon": [-1e308, 1e308]}}),
    ("/v1/field", {"region": {"lat": [0, 10], "lon": [0, 0]}}),
    ("/v1/field", {"quantile": 0}),
    ("/v1/observations", {"times": [], "stations": [], "values": {}}),
]
TOO_MUCH: list[tuple[str, object]] = [
    ("/v1/forecast", {"sites": [[0, 0]] * (LIMITS.sites + 1)}),
    ("/v1/forecast", {"times": [f"+{k}min" for k in range(1, LIMITS.times + 2)]}),
    (
        "/v1/forecast",
        {"sites": [[0, 0]] * LIMITS.sites, "quantiles": [k / 40 for k in range(1, 40)]},
    ),
    ("/v1/field", {"size": [100, 100]}),
    ("/v1/field", {"size": [2, 10**15]}),
    ("/v1/forecast", {"names": ["x" * LIMITS.body_bytes]}),
]
SERIES = ("", "?stations=", "?stations=nobody", "?stations=%ff")
HOURS = ("-1", "0", "nan", "inf", "x", "1e400")
REGIONS = ("x", "1,2,3", "nan,0,1,1", "0,0,0,0", "0,-91,1,1", "1e9,0,2e9,1")
QUERIES = [
    *(f"/v1/stations?time={time}" for time in ("nonsense", "", "1990", "9" * 1000)),
    *(f"/v1/series{query}" for query in SERIES),
    *(f"/v1/series?stations=0&hours={hours}" for hours in HOURS),
    *(f"/v1/coast?region={region}" for region in REGIONS),
]


def refused(client: TestClient, answer: object) -> str:
    message = str(answer.json()["error"]["message"])
    assert 400 <= answer.status_code < 500, answer.text
    assert len(message) > 20 and "Traceback" not in message
    assert client.get("/health/live").status_code == 200
    return message


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("body", NOT_JSON.values(), ids=list(NOT_JSON))
def test_a_body_is_strict_json(client: TestClient, path: str, body: bytes) -> None:
    answer = client.post(path, content=body, headers=JSON)
    refused(client, answer)
    assert answer.status_code == 400


@pytest.mark.parametrize(("path", "content"), NOT_FITTING)
def test_what_does_not_fit_is_refused(client: TestClient, path: str, content: object) -> None:
    answer = client.post(path, content=json.dumps(content), headers=JSON)
    refused(client, answer)
    assert answer.status_code == 422


@pytest.mark.parametrize(("path", "content"), TOO_MUCH)
def test_too_much_is_refused(client: TestClient, path: str, content: object) -> None:
    answer = client.post(path, json=content)
    refused(client, answer)
    assert answer.status_code == 413


@pytest.mark.parametrize("path", QUERIES)
def test_queries_are_checked(client: TestClient, path: str) -> None:
    answer = client.get(path)
    refused(client, answer)
    assert answer.status_code == 422


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/docs", 404),
        ("GET", "/redoc", 404),
        ("GET", "/static/notes.txt", 404),
        ("GET", "/static/link.css", 404),
        ("GET", "/static/..%2findex.html", 404),
        ("GET", "/static/%2e%2e/guard.py", 404),
        ("GET", "/static/", 404),
        ("GET", "/v1/forecast", 405),
        ("DELETE", "/v1/observations", 405),
        ("PUT", "/v1/model", 405),
        ("OPTIONS", "/v1/forecast", 405),
        ("TRACE", "/v1/model", 405),
    ],
)
def test_other_paths_and_methods(client: TestClient, method: str, path: str, status: int) -> None:
    answer = client.request(method, path)
    refused(client, answer)
    assert answer.status_code == status
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "", "multipart/form-data"]
)
def test_a_body_says_that_it_is_json(client: TestClient, kind: str) -> None:
    answer = client.post("/v1/observations", content=b"{}", headers={"Content-Type": kind})
    refused(client, answer)
    assert answer.status_code == 415


NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        *("sites", "names", "times", "quantiles", "issue_time", "observations"),
        *("channel", "region", "size", "quantile", "values", "stations"),
    ]
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(POSTS),
    content=st.dictionaries(KEYS, ANYTHING, max_size=3),
)
def test_any_content_is_answered_or_refused(
    client: TestClient, path: str, content: dict[str, object]
) -> None:
    body = json.dumps(content).encode()
    answer = client.post(path, content=body, headers=JSON)
    assert answer.status_code in (200, 400, 413, 422), answer.text


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(POSTS), body=st.binary(max_size=200))
def test_any_bytes_are_refused(client: TestClient, path: str, body: bytes) -> None:
    assert client.post(path, content=body, headers=JSON).status_code in (200, 400, 422)


@settings(max_examples=200)
@given(content=ANYTHING)
def test_strict_json_is_json(content: object) -> None:
    """What Python writes is read alike, but for integers beyond 64 bits and lone surrogates."""
    text = json.dumps(content)
    try:
        found = parse_json(text.encode(), depth=20)
    except Refused as error:
        assert "surrogate" in str(error) or "finite" in str(error)
        return
    assert json.dumps(found) == text or any(len(part) > 18 for part in text.split())


def test_depth_is_counted_outside_of_texts() -> None:
    assert parse_json(b'["[[[[[", "\\"]]{{"]', depth=1) == ["[[[[[", '"]]{{']
    assert parse_json(b"[[[]]]", depth=3) == [[[]]]
    with pytest.raises(Refused):
        parse_json(b"[[[]]]", depth=2)


def test_large_integers_become_numbers() -> None:
    assert parse_json(b"[9223372036854775808]", depth=1) == [math.ldexp(1, 63)]
