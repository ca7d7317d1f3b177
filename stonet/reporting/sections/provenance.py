"""Section on configuration and provenance: what made these numbers, and how to make them again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from stonet.config import Config
from stonet.data.checksum import data_sha256
from stonet.reporting.blocks import Cell, Facts, Row, Section, Table
from stonet.reporting.results import Results
from stonet.reporting.sections.training import budget
from stonet.system.provenance import commit
from stonet.training.trained_model import versions


def provenance_section(results: Results) -> Section:
    """Versions, checksums, seed, budget and all settings.

    Args:
        results: of the model.
    """
    origin, config = results.origin, results.trained.config
    facts = {
        "Made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "Commit of stonet": commit(),
        **{f"Version of {name}": text for name, text in versions().items()},
        "Run": origin.run or "a model in memory",
        "Seed": str(config.train.seed),
        "Budget": budget(results),
        "Part scored": f"{results.part}, {_feedback(results)}",
        "SHA-256 of the data": data_sha256(results.task.dataset),
    }
    weights = origin.files.get("model.safetensors")
    if weights:
        facts["SHA-256 of the weights"] = weights
    if origin.run:
        words = ["stonet", "evaluate", origin.run]
        words += [] if results.own_data else [results.task.dataset.name]
        words += ["--part", results.part, *(["--no-feedback"] * (not results.feedback)), "--json"]
        facts["The same scores"] = shlex.join(words)
    changed = [row for row in _settings(config) if row.keys["default"] == "no"]
    columns = ("setting", "value")
    lead = "What these numbers were made from, and how to make them again."
    return Section(
        "provenance",
        "Configuration and provenance",
        lead,
        [
            Facts(facts),
            Table("Settings that differ from the defaults", columns, changed, text_columns=2),
            Table("All settings", columns, list(_settings(config)), folded=True, text_columns=2),
        ],
    )


def _feedback(results: Results) -> str:
    return "corrected by recent errors" if results.feedback else "not corrected by recent errors"


def _settings(config: Config) -> Iterator[Row]:
    """All settings; `default` says whether a value is the default one."""
    usual = dict(_flat(Config().model_dump(mode="json")))
    for name, value in _flat(config.model_dump(mode="json")):
        text = value if isinstance(value, str) else json.dumps(value)
        keys = {"default": "yes" if usual.get(name) == value else "no"}
        yield Row([Cell(name), Cell(text)], keys)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names with dots, and values."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value and not prefix:
            yield from _flat(value, f"{key}.")
        else:
            yield f"{prefix}{key}", value
