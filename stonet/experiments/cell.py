"""Cells: one training with its scores, what decides them, and the file that holds them.

A cell is identified by experiment, data, label, seed, settings and budget. Its result holds all
settings that decided it, the hash of the data as read, and stonet's version and commit. A result is
*stale* if the data, the version or one of these settings are others now; settings that were added
since leave earlier results as they are.
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

FORMAT = 3
DIGITS = 6  # significant digits of stored numbers
Scores = dict[str, Any]
_FLAT_LIST = re.compile(r"\[\n[^\[\]{}]*\]")


@dataclass(frozen=True)
class Cell:
    """One training: which model learns from which data, for how long.

    Args:
        experiment: its name.
        dataset: an entry of EXPERIMENT_DATA, a data set or a file.
        label: the row of the table.
        seed: of the training.
        model: name in the model registry.
        preset: name of the settings that others are added to.
        settings: such as "train.lr=0.001".
        budget: name of the experiment budget.
        training: epochs, steps or minutes.
        threads: of PyTorch; None: its default.
        inductive: whether the data's own unseen points are used.
        extra: further choices of the experiment.
    """

    experiment: str
    dataset: str
    label: str
    seed: int
    model: str
    preset: str
    settings: tuple[str, ...]
    budget: str
    training: Budget
    threads: int | None = 1
    inductive: bool = False
    extra: tuple[tuple[str, Any], ...] = ()

    @property
    def config(self) -> Config:
        """The configuration: preset and settings, with the model and the seed."""
        values = load_config(self.preset, None, self.settings).model_dump(exclude_unset=True)
        values["model"], values["train"] = self.model, values.get("train", {}) | {"seed": self.seed}
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

    @property
    def relevant_settings(self) -> dict[str, Any]:
        """All settings that affect the result, as "section.key": a baseline ignores STONet's."""
        config = self.config
        own = {"stonet": "network", "stonet-paper": "paper", "stonet-operator": "operator"}
        used = {"graph", own[config.model]} if config.model in own else {"baseline"}
        foreign = {"graph", "network", "paper", "operator", "baseline"} - used
        settings = {"model": config.model}
        for name, section in config.model_dump(mode="json").items():
            if isinstance(section, dict) and name not in foreign:
                settings |= {f"{name}.{key}": value for key, value in section.items()}
        return rounded(settings)

    def to_json(self) -> dict[str, Any]:
        """The cell as JSON types."""
        return asdict(self) | {"extra": self.options}

    @staticmethod
    def from_json(content: dict[str, Any]) -> Cell:
        """The cell of which `to_json` gave the content.

        Args:
            content: as parsed.
        """
        parsed = {
            "settings": tuple(content["settings"]),
            "training": Budget(**content["training"]),
            "extra": tuple(sorted(content["extra"].items())),
        }
        return Cell(**content | parsed)


@dataclass(frozen=True)
class Result:
    """The scores of a cell, and what is needed to reproduce them.

    Args:
        cell: what was computed.
        settings: that decided the scores.
        scores: what the experiment's `measure` returned.
        data_hash: of all values, times and positions.
        commit: of the code; "+" where files differed from it.
        seconds: elapsed time.
        cpu_seconds: of all threads.
        peak_mb: most memory in use.
        machine: processor, cores and memory.
        versions: of Python and of libraries.
        date: when the cell was computed.
        stale: whether version, data or settings have changed since.
    """

    cell: Cell
    settings: dict[str, Any]
    scores: Scores
    data_hash: str
    commit: str
    seconds: float
    cpu_seconds: float
    peak_mb: float
    machine: dict[str, Any]
    versions: dict[str, str]
    date: str
    stale: bool = False

    def is_stale(self, data_hash: str) -> bool:
        """Whether version, data or a setting are others than when the cell was computed.

        Args:
            data_hash: of the data as they are now.
        """
        now, unknown = self.cell.relevant_settings, object()
        changed = any(now.get(name, unknown) != value for name, value in self.settings.items())
        return changed or data_hash != self.data_hash or self.versions.get("stonet") != __version__

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
    """The same content with floats of six significant digits, and None for NaN.

    Args:
        value: anything that JSON can hold.
    """
    if isinstance(value, dict):
        return {str(key): rounded(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(part) for part in value]
    if isinstance(value, float):
        return None if value != value else float(f"{value:.{DIGITS}g}")
    return value


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
