"""What every test shares. stonet itself must not be imported here: jaxtyping's hook comes later."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest
import torch

os.environ.setdefault("MPLBACKEND", "Agg")
torch.set_num_threads(1)  # quicker for small tests, and the same bits whatever the machine

hypothesis.settings.register_profile("stonet", deadline=None, derandomize=True)
hypothesis.settings.load_profile("stonet")


@pytest.fixture(autouse=True)
def _seed() -> None:
    """Torch's global generator starts alike in every test, whichever tests run."""
    torch.manual_seed(0)


@pytest.fixture
def data() -> Callable[[str], Path]:
    """data("era5-uk/x.grib"): a real file from STONET_DATA or ../shared/data; skips without it."""
    given = os.environ.get("STONET_DATA")
    folder = Path(given) if given else Path(__file__).parents[2] / "shared" / "data"

    def find(name: str) -> Path:
        if not (folder / name).exists():
            pytest.skip(f"no {name} in {folder}: set STONET_DATA")
        return folder / name

    return find
