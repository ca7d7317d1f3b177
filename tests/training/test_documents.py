"""Documents of a run are read strictly: hostile or damaged ones are refused with a message."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict

import pytest

from stonet.data.scaling import Scaler
from stonet.data.time_spec import TimeSpec
from stonet.errors import ModelFileError
from stonet.training.documents import (
    channels_of,
    config_of,
    names_of,
    parse_document,
    points_of,
    scaler_of,
    time_spec_of,
)

HOUR = 3600 * 10**9
TIMES = asdict(TimeSpec(HOUR, 6, 4, True))
SCALER = asdict(Scaler((1.0, 2.0), (3.0, 4.0), (None, 0.0), (9.5, None)))


def test_what_is_written_is_read() -> None:
    content = {"a": [1, -2.5, None, True], "b": {"c": "é", "d": 2**63 - 1}}
    assert parse_document(json.dumps(content).encode(), "x") == content
    assert time_spec_of(json.loads(json.dumps(TIMES))) == TimeSpec(**TIMES)
    scaler = scaler_of(json.loads(json.dumps(SCALER)), 2)
    assert scaler == Scaler(**SCALER) and isinstance(scaler.low, tuple)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"7",
        b"{",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": 1, "a": 1}',
        b'{"a": {"b": 1, "b": 2}}',
        b'{"a\xff": 1}',
        '{"a": 1}'.encode("utf-16"),
        b'{"a": ' + b"9" * 20 + b"}",
        b'{"a": ' + b"9" * 100_000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    ],
    ids=lambda data: repr(data[:12]),
)
def test_what_is_no_strict_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(ModelFileError, match=r"^x\.json is not a JSON object") as error:
        parse_document(data, "x.json")
    assert error.value.exit_code == 3 and len(str(error.value)) < 400


@pytest.mark.parametrize(
    "change",
    [
        {"past": 0},
        {"past": -3},
        {"horizon": 10**9},
        {"step": 0},
        {"step": -HOUR},
        {"step": 2**62},
        {"step": 1.5},
        {"step": "1"},
        {"calendar": 3},
        {"zone": "UTC"},
        {"past": None},
    ],
)
def test_impossible_time_specs_are_refused(change: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        time_spec_of(TIMES | change)


@pytest.mark.parametrize(
    "change",
    [
        {"mean": [1.0]},
        {"mean": [True, 1.0]},
        {"mean": None},
        {"mean": ["1", "2"]},
        {"std": [1.0, 0.0]},
        {"std": [1.0, -1.0]},
        {"std": [1.0, 1e300]},
        {"mean": [1e39, 1.0]},
        {"low": [9.0, None], "high": [8.0, None]},
        {"low": ["x", None]},
        {"low": [1.0, 2.0, 3.0]},
        {"other": 1},
    ],
)
def test_impossible_scalers_are_refused(change: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        scaler_of(SCALER | change, 2)


@pytest.mark.parametrize(
    "read",
    [
        lambda: channels_of({"channels": "t2m", "units": ["K"]}),
        lambda: channels_of({"channels": [], "units": []}),
        lambda: channels_of({"channels": ["a", "a"], "units": ["K", "K"]}),
        lambda: channels_of({"channels": ["a"], "units": []}),
        lambda: channels_of({"channels": [3], "units": ["K"]}),
        lambda: names_of(["\ud800"], "names"),
        lambda: points_of({"coordinates": [["1", "2"]], "kind": "plane", "names": ["a"]}),
        lambda: points_of({"coordinates": [1, 2], "kind": "plane", "names": ["a"]}),
        lambda: points_of({"coordinates": [[1e300, 2.0]], "kind": "plane", "names": ["a"]}),
        lambda: points_of({"coordinates": [[1.0, 2.0]], "kind": "plane", "names": [["a"]]}),
    ],
)
def test_impossible_channels_and_points_are_refused(read: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        read()


def test_sizes_of_a_model_are_bounded_and_counts_are_not() -> None:
    config_of({"graph": {"seed": 2**40}, "train": {"steps": 10**9}, "data": {"past": 10**6}})
    for hostile in ({"baseline": {"layers": 10**6}}, {"baseline": {"hidden": 10**9}}):
        with pytest.raises(ValueError, match=r"baseline\.\w+ is 10+; expected at most"):
            config_of(hostile)
