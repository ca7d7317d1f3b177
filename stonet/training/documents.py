"""The JSON documents of a run, read strictly: a run folder may come from an untrusted source.

Numbers are finite, keys are given once, and every entry has the type that its dataclass declares.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_type_hints

import numpy as np
from pydantic import ConfigDict, ValidationError, create_model

from stonet.config import Config, make_config
from stonet.data.geometry import Points
from stonet.data.scaling import Scaler
from stonet.data.time_spec import TimeSpec
from stonet.errors import ModelFileError
from stonet.training.choice import Choice, Choices, check_choices

COUNTING_SECTIONS = ("read", "data", "train", "pretraining")  # no sizes of a model
MAX_SIZE = 2**16  # of a setting that is a width, a number of layers and the like
MAX_STEPS = 100_000  # of the inputs, and of the forecast
MAX_CHANNELS = 10_000
MAX_SPAN = 2**62  # nanoseconds of inputs and forecast: 146 years
MAX_INTEGER = 2**63
MAX_VALUE = float(np.finfo(np.float32).max)  # of data
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
T = TypeVar("T")


def parse_document(data: bytes, source: str) -> dict[str, Any]:
    """A JSON object.

    Args:
        data: UTF-8 text.
        source: its name in error messages.

    Raises:
        ModelFileError: if it is no JSON object, repeats a key, or holds NaN or a number beyond
            64 bits.

    Example:
        >>> parse_document(b'{"mean": [0.5]}', "scaler.json")
        {'mean': [0.5]}
    """
    try:
        content = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_without_repeats,
            parse_constant=_finite,
            parse_float=_finite,
            parse_int=_integer,
        )
    except (ValueError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        raise ModelFileError(
            f"{source} is not a JSON object ({reason}). Use an intact copy or fit again."
        ) from error
    if not isinstance(content, dict):
        raise ModelFileError(
            f"{source} is not a JSON object but a {type(content).__name__}. Use an intact copy or "
            "fit again."
        )
    return content


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(k for k in keys if keys.count(k) > 1)!r} is repeated")
    return content


def _finite(text: str) -> float:
    number = float(text)
    if not np.isfinite(number):
        raise ValueError(f"the number {text} is not finite")
    return number


def _integer(text: str) -> int:
    if len(text) > 20 or abs(int(text)) >= MAX_INTEGER:
        raise ValueError(f"the integer {text[:20]}... exceeds 64 bits")
    return int(text)


def typed(kind: type[T], values: Any) -> T:
    """A dataclass from a document; every entry must have the declared type.

    Args:
        kind: the dataclass.
        values: as parsed from JSON.

    Raises:
        ValueError: an entry is missing, unknown or of another type.
    """
    hints = get_type_hints(kind)
    entries = [entry for entry in fields(kind) if entry.init]  # type: ignore[arg-type]
    definitions: dict[str, Any] = {
        entry.name: (hints[entry.name], ... if entry.default is MISSING else entry.default)
        for entry in entries
    }
    model = create_model(kind.__name__, __config__=STRICT, **definitions)
    try:
        checked = model.model_validate_json(json.dumps(values))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{kind.__name__}.{where}: {first['msg']}") from None
    return kind(**{entry.name: getattr(checked, entry.name) for entry in entries})


def config_of(values: Any) -> Config:
    """The configuration of a document.

    Args:
        values: as parsed from JSON.

    Raises:
        ValueError: a setting is unknown, invalid, or larger than any model needs.
    """
    config = make_config(values)
    for section, settings in config.model_dump().items():
        if section in COUNTING_SECTIONS or not isinstance(settings, dict):
            continue
        for key, value in settings.items():
            if isinstance(value, int) and value > MAX_SIZE and key != "seed":
                raise ValueError(f"{section}.{key} is {value}; expected at most {MAX_SIZE}")
    return config


def time_spec_of(values: Any) -> TimeSpec:
    """The time spec of a document.

    Args:
        values: as parsed from JSON.

    Raises:
        ValueError: lengths are not positive, or beyond what any data have.
    """
    times = typed(TimeSpec, values)
    for name, steps in (("past", times.past), ("horizon", times.horizon)):
        if not 1 <= steps <= MAX_STEPS:
            raise ValueError(f"time_spec.{name} is {steps}; expected 1 to {MAX_STEPS}")
    if times.step < 1 or times.step * (times.past + times.horizon) > MAX_SPAN:
        raise ValueError(f"time_spec.step is {times.step} ns; expected a positive, shorter one")
    return times


def scaler_of(values: Any, channels: int) -> Scaler:
    """The scaler of a document.

    Args:
        values: as parsed from JSON.
        channels: number of channels.

    Raises:
        ValueError: it does not scale this number of channels, a number is beyond that of
            data, a scale is not positive, or a range is empty.
    """
    scaler = typed(Scaler, values)
    for name, row in vars(scaler).items():
        required = name in ("mean", "std")
        if isinstance(row, tuple) and len(row) != channels and (row or required):
            raise ValueError(f"scaler.{name} has {len(row)} entries for {channels} channels")
        if name != "rules" and any(abs(number or 0) > MAX_VALUE for number in row):
            raise ValueError(f"scaler.{name} holds {row}; data have no value above {MAX_VALUE:g}")
    if min(scaler.std) <= 0:
        raise ValueError(f"scaler.std holds {min(scaler.std)}; expected positive numbers")
    for low, high in zip(scaler.low, scaler.high, strict=False):
        if low is not None and high is not None and low > high:
            raise ValueError(f"scaler.low is {low}, above scaler.high, {high}")
    return scaler


def choices_of(values: Any, channels: Sequence[str], horizon: int) -> Choices:
    """The choices of a document; none where it has no such entry.

    Args:
        values: the entry, as parsed.
        channels: of the field.
        horizon: number of trained leads.

    Raises:
        ValueError: they are no list, or name what does not exist.
    """
    if values is None:
        return ()
    if not isinstance(values, list) or len(values) > len(channels) * horizon:
        raise ValueError(f"choices are {type(values).__name__}; expected a short list")
    return check_choices(tuple(typed(Choice, value) for value in values), channels, horizon)


def points_of(values: Mapping[str, Any]) -> Points:
    """The training points of a document.

    Args:
        values: as parsed from JSON.

    Raises:
        ValueError: coordinates are no pairs of numbers, or names are no text.
    """
    coordinates, names = np.array(values["coordinates"]), names_of(values["names"], "names")
    if coordinates.dtype.kind not in "if":
        raise ValueError(f"points.coordinates are {coordinates.dtype}; expected numbers")
    if coordinates.ndim != 2:
        raise ValueError(f"points.coordinates have shape {coordinates.shape}; expected pairs")
    return Points(coordinates.astype(np.float64), values["kind"], names)


def names_of(values: Any, what: str) -> tuple[str, ...]:
    """A list of texts as a tuple.

    Args:
        values: as parsed from JSON.
        what: the entry, for messages.

    Raises:
        ValueError: it is no list of texts.
    """
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise ValueError(f"{what} is {type(values).__name__}; expected a list of texts")
    if not all(isinstance(name, str) for name in values):
        raise ValueError(f"{what} holds more than texts")
    "".join(values).encode()  # raises for half a surrogate pair, which no file can hold
    return tuple(values)


def channels_of(document: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names and units of the channels.

    Args:
        document: config.json as parsed.

    Raises:
        ValueError: there is none or one twice, or there is not one unit for each.
    """
    channels, units = (names_of(document[key], key) for key in ("channels", "units"))
    if not 1 <= len(channels) <= MAX_CHANNELS or len(set(channels)) < len(channels):
        raise ValueError(f"{len(channels)} channels; expected one or more, each with its own name")
    if len(units) != len(channels):
        raise ValueError(f"{len(units)} units for {len(channels)} channels")
    return channels, units
