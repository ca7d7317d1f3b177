"""A hash of code changes with what a result depends on, and with nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from contracts import small_field, small_task

from stonet import comparison
from stonet.experiments.budgets import effort_of
from stonet.experiments.comparison import variant
from stonet.provenance import PACKAGE, code_hash, reached

MEASURE = "stonet.experiments.comparison.measure"
Feel = Callable[..., tuple[bool, bool]]
STGCN, STONET = "stonet.rivals.stgcn.STGCN", "stonet.model.STONetwork"


HARMLESS = (
    ("kernel.py", '"""', '"""Other words. '),
    ("training.py", "import math\n", "import math\n\n# a remark\n"),
    ("experiments/comparison.py", 'line["skill"] = 1 -', 'line["skill"] = 2 -'),  # of table()
    ("experiments/inductive.py", "def measure(", "def other() -> None: ...\n\n\ndef measure("),
    ("config.py", "latent: int = Field(16", "latent: int = Field(17"),  # resolved, it is in the key
    ("rivals/tgcn.py", "class TGCN", "OTHER = 1\n\n\nclass TGCN"),
    ("plots.py", "DPI = 150", "DPI = 151"),
)


@pytest.fixture
def changed(tmp_path: Path) -> Feel:
    """Whether a rival's and STONet's hash feel changes in files of the package."""

    def feel(*changes: tuple[str, str, str]) -> tuple[bool, bool]:
        ignored = shutil.ignore_patterns("__pycache__", "doctor", "benchmarks")
        copy = Path(shutil.copytree(PACKAGE, tmp_path / "stonet", ignore=ignored))
        for file, old, new in changes:
            text = (copy / file).read_text()
            assert old in text
            (copy / file).write_text(text.replace(old, new, 1))
        rival, ours = (
            code_hash(MEASURE, model) != code_hash(MEASURE, model, package=copy)
            for model in (STGCN, STONET)
        )
        return rival, ours

    return feel


def test_what_does_not_matter_is_not_felt(changed: Feel) -> None:
    assert changed(*HARMLESS) == (False, False)


@pytest.mark.parametrize(
    ("file", "old", "new", "felt"),
    [
        ("training.py", "MAX_BAD_STEPS = 3", "MAX_BAD_STEPS = 4", (True, True)),
        ("metrics.py", "math.sqrt(", "math.cbrt(", (True, True)),
        ("encoder.py", "class MultipoleEncoder", "@final\nclass MultipoleEncoder", (False, True)),
        ("rivals/stgcn.py", "class Block(nn.Module)", "class Block(nn.Sequential)", (True, False)),
    ],
)
def test_what_matters_is_felt(
    changed: Feel, file: str, old: str, new: str, felt: tuple[bool, bool]
) -> None:
    assert changed((file, old, new)) == felt


def test_dependencies_are_followed_through_the_package() -> None:
    rival, ours = ({module for module, _ in reached(MEASURE, model)} for model in (STGCN, STONET))
    assert {"stonet.rivals.stgcn", "stonet.training", "stonet.scaling", "stonet.loss"} <= rival
    assert {"stonet.kernel", "stonet.decoder", "stonet.linear", "stonet.multipole"} <= ours
    assert not {"stonet.kernel", "stonet.decoder"} & rival
    assert not {"stonet.rivals.stgcn", "stonet.plots", "stonet.config", "stonet.console"} & ours
    assert ("stonet.experiments.comparison", "table") not in reached(MEASURE, STONET)


def test_a_rival_knows_nothing_of_what_it_does_not_use() -> None:
    """Neither of STONet's school nor, unless it stands on it, of the linear base."""
    effort = effort_of("small")
    code = {
        label: effort.cell("comparison", "wave", label, **variant(label)).code
        for label in ("stgcn", "stgcn+base", "linear")
    }
    apart = ("stonet.expert", "stonet.school")
    base = ("stonet.linear", "stonet.linear_fit", "stonet.stencil")
    assert code["stgcn"] == code_hash(MEASURE, STGCN, apart=apart + base)
    assert code["stgcn+base"] == code_hash(MEASURE, STGCN, apart=apart)
    used = {module for module, _ in reached(MEASURE, STGCN, apart=apart + base)}
    assert "stonet.training" in used and not {*apart, *base, "stonet.ridge"} & used
    linear = "stonet.rivals.floors.linear"
    assert code["linear"] == code_hash(MEASURE, linear, apart=apart)
    assert {*base} <= {module for module, _ in reached(MEASURE, linear, apart=apart)}


def test_the_steps_of_a_budget_are_remembered_for_the_code_that_found_them(monkeypatch) -> None:
    """Not for that of the model alone: the shares of a budget decide as well."""
    asked: list[str] = []
    monkeypatch.setattr(comparison, "code_hash", lambda *roots: asked.extend(roots) or "")
    comparison._fingerprint(small_task(small_field("plane")), 1.0)
    used = reached(*asked)
    for name in (
        "PROBE",
        "JUDGED",
        "JUDGING",
        "SCHOOLING",
        "TAUGHT",
        "LONGER",
        "_schooling",
        "_epochs",
    ):
        assert ("stonet.comparison", name) in used
    assert {("stonet.training", "Trainer"), ("stonet.model", "STONetwork")} <= used


def test_the_steps_of_a_budget_are_remembered_for_the_data_that_they_were_found_with() -> None:
    """Gaps, which take a model time, do not show in the number of points or of windows."""
    field = small_field("plane")
    torn = replace(field, mask=np.random.default_rng(0).random(field.values.shape) < 0.6)
    prints = {comparison._fingerprint(small_task(data), 1.0) for data in (field, torn)}
    assert len(prints) == 2
    assert comparison._fingerprint(small_task(field), 1.0) in prints
