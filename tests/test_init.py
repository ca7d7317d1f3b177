"""The public names: complete, documented, and imported only on use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.small import small_field

import stonet

NAMES = [name for name in stonet.__all__ if not name.startswith("_")]


def test_completion_shows_the_public_names() -> None:
    assert set(dir(stonet)) == set(stonet.__all__)
    expected = {"read", "check", "STONet", "TrainedModel", "Field", "Dataset", "Points", "evaluate"}
    assert expected | {"hindcast", "open_dataset", "report", "Stream", "StonetError"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    documentation = getattr(stonet, name).__doc__
    assert documentation and len(documentation.split()) > 4


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'stonett'"):
        stonet.stonett  # noqa: B018


def test_importing_imports_neither_torch_nor_pandas() -> None:
    code = (
        "import sys, stonet; dir(stonet); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'pandas', 'xarray', 'numpy')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(stonet.__file__).parents[1])
    assert done.returncode == 0


def test_the_package_is_marked_as_typed() -> None:
    assert (Path(stonet.__file__).parent / "py.typed").is_file()


def test_the_quality_report_takes_the_options_of_read() -> None:
    field = small_field()
    report = stonet.check(field)
    assert report.facts["frames"] == 120
    assert stonet.check(field, stop="2026-03-02").facts["frames"] == 48
    text = repr(report)
    assert text.startswith("Report: ") and len(text.splitlines()) <= 10
