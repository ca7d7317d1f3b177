"""Cells: one training with its scores, what decides them, and the file that holds them.

A cell is identified by experiment, data, label, seed, settings and budget. Its *key* is the SHA-256
of these, of the resolved configuration, of the data as read and of stonet's version. A stored
result with another key is *stale*. The commit that computed a result is stored with it.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from stonet._version import __version__
from stonet.config import Config, load_config, make_config
from stonet.errors import DataError
from stonet.training.budget import Budget

FORMAT = 1
OWN_SECTION = {"stonet": "network", "stonet-operator": "operator", "stonet-paper": "paper"}
DIGITS = 6  # significant digits of stored numbers
Scores = dict[str, Any]
_FLAT_LIST = re.compile(r"\[\n[^\[\]{}]*\]")


@dataclass(frozen=True)
class Cell:
    """One training: which model learns from which data, for how long."""

    experiment: str
    dataset: str  # an entry of EXPERIMENT_DATA, a data set or a file
    label: str  # the row of the table
    seed: int
    model: str  # name in the model registry
    preset: str
    settings: tuple[str, ...]
    budget: str  # name of the experiment budget
    training: Budget
    threads: int | None = 1
    inductive: bool = False  # whether the data's own unseen points are used
    extra: tuple[tuple[str, Any], ...] = ()  # further choices of the experiment

    @property
    def config(self) -> Config:
        """The configuration: preset and settings, with the model and the seed."""
        values = load_config(self.preset, None, self.settings).model_dump()
        values["model"], values["train"]["seed"] = self.model, self.seed
        return make_config(values)

    @property
    def options(self) -> dict[str, Any]:
        """`extra` as a dictionary."""
        return dict(self.extra)

    @property
    def name(self) -> str:
        """The name of its file; independent of code, default settings and data."""
        plain = re.sub(r"[^A-Za-z0-9.+=-]+", "_", self.label)
        return f"{plain}-s{self.seed}-{_sha256(asdict(self))[:10]}"

    def key(self, data_hash: str) -> str:
        """The hash of all that decides the result.

        Args:
            data_hash: of the data as read, see `data_sha256`.
        """
        unnamed = asdict(self) | {"preset": None, "settings": None, "label": None, "budget": None}
        return _sha256([unnamed, _relevant(self.config), data_hash, __version__])

    def to_json(self) -> dict[str, Any]:
        """The cell as JSON types."""
        return asdict(self) | {"extra": self.options}

    @staticmethod
    def from_json(content: dict[str, Any]) -> Cell:
        """The cell of which `to_json` gave the content."""
        parsed = {
            "settings": tuple(content["settings"]),
            "training": Budget(**content["training"]),
            "extra": tuple(sorted(content["extra"].items())),
        }
        return Cell(**content | parsed)


@dataclass(frozen=True)
class Result:
    """The scores of a cell, and what is needed to reproduce them."""

    cell: Cell
    key: str
    scores: Scores
    config_hash: str
    data_hash: str
    commit: str  # "+" where files differed from it
    seconds: float
    cpu_seconds: float
    peak_mb: float
    machine: dict[str, Any]
    versions: dict[str, str]
    date: str
    stale: bool = False  # whether version, data or settings have changed since

    def to_json(self) -> str:
        """The content of its file: six digits, each list of numbers on one line."""
        content = {"format": FORMAT} | vars(self) | {"cell": self.cell.to_json()}
        content.pop("stale")
        text = json.dumps(rounded(content), indent=1, allow_nan=False)
        return _FLAT_LIST.sub(lambda match: re.sub(r"\s*\n\s*", " ", match[0]), text) + "\n"

    @staticmethod
    def from_json(text: str, source: str) -> Result:
        """The result in the text of a file.

        Args:
            text: content of the file.
            source: name of the file, for errors.

        Raises:
            DataError: the text is no result, or of another format.
        """
        try:
            content = json.loads(text)
            if content.pop("format") != FORMAT:
                raise DataError(f"'{source}' is not of format {FORMAT}. Compute the cell again.")
            return Result(**content | {"cell": Cell.from_json(content["cell"])})
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"'{source}' is no result of `stonet reproduce` ({error}). Delete it."
            ) from None


def rounded(value: Any) -> Any:
    """The same content with floats of six significant digits, and None for NaN."""
    if isinstance(value, dict):
        return {str(key): rounded(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(part) for part in value]
    if isinstance(value, float):
        return None if value != value else float(f"{value:.{DIGITS}g}")
    return value


def config_hash(config: Config) -> str:
    """The hash of every resolved setting."""
    return _sha256(config.model_dump())


def _relevant(config: Config) -> dict[str, Any]:
    """The settings that affect the model: a baseline ignores those of STONet, and vice versa."""
    content = config.model_dump()
    network, own = content["network"], OWN_SECTION.get(config.model)
    others = {name: None for name in OWN_SECTION.values() if name != own}
    if config.model == "stonet":
        return content | others | {"baseline": None}
    content |= others
    if own is not None:
        unused = {"baseline": None, "pretraining": None}
        return content | unused | {"network": network["window_time"]}
    base_settings = {name: network[name] for name in ("window_time", "sun")}
    has_base = config.model == "linear" or config.baseline.base != "none"
    return content | {
        "graph": None,
        "network": base_settings if has_base else network["window_time"],
        "pretraining": None,
    }


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
