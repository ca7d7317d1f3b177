"""The table of all settings."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args, get_origin

from stonet.config import Config, section_of


class SettingRow(NamedTuple):
    """One line of the table of settings."""

    section: str  # empty for settings without a section
    key: str
    type: str
    default: str
    description: str


def settings_table() -> list[SettingRow]:
    """All settings with their types, defaults and descriptions, in the order of the sections."""
    rows = []
    for name, field in Config.model_fields.items():
        section = section_of(name)
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
    choices = get_args(annotation)
    if get_origin(annotation) is dict:
        return "table"
    if choices:
        return " or ".join(_type_label(choice) for choice in choices)
    return "none" if annotation is type(None) else str(annotation.__name__)
