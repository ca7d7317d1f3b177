"""What every test shares. stonet itself must not be imported here: jaxtyping's hook comes later."""

from __future__ import annotations

import os

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
