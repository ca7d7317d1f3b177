"""Cells: one training and its scores; what decides them, and the file they are kept in.

A cell is asked for by name: experiment, data, label, seed, settings, budget. Its *key* is the
SHA-256 of the question, the resolved configuration, the data as read and stonet's version. A stored
result with another key is *stale*. The commit that computed a result is kept beside it.
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
DIGITS = 6
Scores = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """A question: which model learns what, for how long."""

    experiment: str
    dataset: str  # a task, a data set or a file
    label: str  # the row of the table
    seed: int
    model: str  # as the zoo knows it
    preset: str
    settings: tuple[str, ...]
    budget: str  # the effort's name
    training: Budget
    threads: int | None = 1
    inductive: bool = False  # whether the data's own unseen points are wanted
    extra: tuple[tuple[str, Any], ...] = ()  # what else the experiment must know

    @property
    def config(self) -> Config:
        """Preset and settings, with the model and the seed."""
        values = load_config(self.preset, None, self.settings).model_dump()
        values["model"], values["train"]["seed"] = self.model, self.seed
        return make_config(values)

    @property
    def options(self) -> dict[str, Any]:
        """`extra` as a dictionary."""
        return dict(self.extra)

    @property
    def name(self) -> str:
        """A file's name, the same whatever became of code, defaults and data."""
        plain = re.sub(r"[^A-Za-z0-9.+=-]+", "_", self.label)
        return f"{plain}-s{self.seed}-{_sha256(asdict(self))[:10]}"

    def key(self, data: str) -> str:
        """What decides the result, given the data's hash."""
        asked = asdict(self) | {"preset": None, "settings": None, "label": None, "budget": None}
        return _sha256([asked, _relevant(self.config), data, __version__])

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"extra": self.options}

    @staticmethod
    def from_json(content: dict[str, Any]) -> Cell:
        changed = {
            "settings": tuple(content["settings"]),
            "training": Budget(**content["training"]),
            "extra": tuple(sorted(content["extra"].items())),
        }
        return Cell(**content | changed)


@dataclass(frozen=True)
class Result:
    """What was found, and everything one needs to find it again."""

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
        """Small and readable: six digits, a list of numbers on one line."""
        content = {"format": FORMAT} | vars(self) | {"cell": self.cell.to_json()}
        content.pop("stale")
        text = json.dumps(rounded(content), indent=1, allow_nan=False)
        return _LIST.sub(lambda found: re.sub(r"\s*\n\s*", " ", found[0]), text) + "\n"

    @staticmethod
    def from_json(text: str, source: str) -> Result:
        """The result in a file's text."""
        try:
            content = json.loads(text)
            if content.pop("format") != FORMAT:
                raise DataError(f"'{source}' has another format than {FORMAT}. Compute it anew.")
            return Result(**content | {"cell": Cell.from_json(content["cell"])})
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"'{source}' is no result of `stonet reproduce` ({error}). Delete it."
            ) from None


_LIST = re.compile(r"\[\n[^\[\]{}]*\]")  # of plain values


def rounded(value: Any) -> Any:
    """The same with floats of six significant digits, None for what is no number."""
    if isinstance(value, dict):
        return {str(key): rounded(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(part) for part in value]
    if isinstance(value, float):
        return None if value != value else float(f"{value:.{DIGITS}g}")
    return value


def config_hash(config: Config) -> str:
    """Of every setting, as resolved."""
    return _sha256(config.model_dump())


def _relevant(config: Config) -> dict[str, Any]:
    """The settings that the model can feel: STONet's are nothing to a baseline, and so on."""
    content = config.model_dump()
    if config.model == "stonet":
        return content | {"baseline": None}
    network = content["network"]
    felt = {name: network[name] for name in ("window_time", "sun")}
    based = config.model == "linear" or config.baseline.base != "none"
    return content | {
        "graph": None,
        "network": felt if based else network["window_time"],
        "pretraining": None,
    }


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
