"""Configurations from presets, TOML files and overrides; the table of all settings."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import ValidationError

from stonet.config.sections import Config, Section
from stonet.errors import UsageError, unknown_name

Settings = Iterable[str] | Mapping[str, Any] | Config


def load_config(
    preset: str = "default", path: str | Path | None = None, settings: Settings = ()
) -> Config:
    """A configuration from a preset, a TOML file and single settings; the last one wins.

    Args:
        preset: "default", "paper", "operator" or "tiny".
        path: a TOML file with some of the settings.
        settings: "section.key=value" strings, a dictionary with nested or dotted keys, or a
            Config, of which the values count that were set explicitly.

    Raises:
        UsageError: unknown preset, key or file, or an invalid value.

    Example:
        >>> load_config("tiny", settings=["train.lr=1e-3"]).train.lr
        0.001
        >>> load_config("tiny", settings={"train": {"lr": 1e-3}, "data.past": "6h"}).data.past
        '6h'
    """
    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    merged = PRESETS[preset]
    if path is not None:
        merged = _merge(merged, _read_toml(Path(path)))
    for override in _overrides(settings):
        merged = _merge(merged, override)
    return make_config(merged)


def make_config(values: Mapping[str, Any]) -> Config:
    """A configuration from nested values; anything not given has its default.

    Args:
        values: by section and key, as a TOML file holds them.

    Raises:
        UsageError: an unknown key, with the nearest valid one, or an invalid value.
    """
    _check_keys(values)
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"][:2])
        got = repr(first.get("input"))
        raise UsageError(f"Setting {name} = {got} does not fit: {first['msg']}.") from None


class SettingRow(NamedTuple):
    """One line of the table of settings.

    Args:
        section: empty for settings without a section.
        key: its name within the section.
        type: with its limits.
        default: as text.
        description: one sentence or more.
    """

    section: str
    key: str
    type: str
    default: str
    description: str


def settings_table() -> list[SettingRow]:
    """All settings with their types, defaults and descriptions, in the order of the sections."""
    rows = []
    for name, field in Config.model_fields.items():
        section = _section(name)
        fields = {name: field} if section is None else section.model_fields
        for key, info in fields.items():
            default = "none" if info.default is None else str(info.default)
            entry = (_type_label(info.annotation), default, info.description or "")
            rows.append(SettingRow("" if section is None else name, key, *entry))
    return rows


def _type_label(annotation: Any) -> str:
    """A type as users write it: 'int or none', 'full or diag'."""
    if get_origin(annotation) is Literal:
        return " or ".join(map(str, get_args(annotation)))
    if get_origin(annotation) is tuple:
        return "list of " + _type_label(get_args(annotation)[0])
    if get_origin(annotation) is dict:
        return "table"
    choices = get_args(annotation)
    if choices:
        return " or ".join(_type_label(choice) for choice in choices)
    return "none" if annotation is type(None) else str(annotation.__name__)


def _section(name: str) -> type[Section] | None:
    """The section of this name; None if there is none."""
    field = Config.model_fields.get(name)
    section = None if field is None else field.annotation
    return section if isinstance(section, type) and issubclass(section, Section) else None


def _check_keys(values: Mapping[str, Any]) -> None:
    """Refuse unknown sections and keys."""
    for name, content in values.items():
        if name not in Config.model_fields:
            raise unknown_name("configuration section", name, Config.model_fields)
        section = _section(name)
        if section is not None and isinstance(content, Mapping):
            for key in content:
                if key not in section.model_fields:
                    raise unknown_name(f"key in section '{name}':", key, section.model_fields)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return _with_none(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UsageError(
            f"No configuration file '{path}'. Check the path given to --config."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"'{path}' cannot be read as TOML: {error}.") from None


def _overrides(settings: Settings) -> list[Mapping[str, Any]]:
    """Settings of any form as nested dictionaries, the strongest last."""
    if isinstance(settings, Config):
        return [settings.model_dump(exclude_unset=True)]
    if isinstance(settings, Mapping):
        return [_nested(str(key), value) for key, value in settings.items()]
    texts = [settings] if isinstance(settings, str) else settings
    return [_parse_setting(text) for text in texts]


def _nested(key: str, value: Any) -> dict[str, Any]:
    """'train.lr', 0.001 as {"train": {"lr": 0.001}}."""
    parts = key.strip().split(".")
    if len(parts) > 2 or not all(parts):
        raise _wrong_form(key)
    return {parts[0]: value} if len(parts) == 1 else {parts[0]: {parts[1]: value}}


def _parse_setting(text: str) -> dict[str, Any]:
    """'train.lr=1e-3' as {"train": {"lr": 0.001}}; a bare word is a string."""
    key, equals, written = text.partition("=")
    if not equals:
        raise _wrong_form(text)
    try:
        value = tomllib.loads(f"value = {written}")["value"]
    except tomllib.TOMLDecodeError:
        value = written.strip()
    return _with_none(_nested(key, value))


def _wrong_form(text: str) -> UsageError:
    return UsageError(f"'{text}' is not of the form section.key=value, e.g. train.lr=1e-3.")


def _with_none(values: Mapping[str, Any], section: type[Section] = Config) -> dict[str, Any]:
    """The values with None for "none", which TOML lacks, where a setting may be None."""
    changed = dict(values)
    for key, value in values.items():
        field, inner = section.model_fields.get(key), _section(key)
        if inner is not None and isinstance(value, Mapping):
            changed[key] = _with_none(value, inner)
        elif value == "none" and field is not None and type(None) in get_args(field.annotation):
            changed[key] = None
    return changed


def _read_presets() -> dict[str, dict[str, Any]]:
    text = (Path(__file__).parents[1] / "presets.toml").read_text(encoding="utf-8")
    return {name: _with_none(values) for name, values in tomllib.loads(text).items()}


def _merge(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(first)
    for key, value in second.items():
        old = merged.get(key)
        nested = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = _merge(merged[key], value) if nested else value
    return merged


PRESETS = _read_presets()  # by name: what differs from the defaults
