"""Temporal modes: uncorrelated, of unit variance, accurate for nearly redundant histories."""

from __future__ import annotations

import numpy as np
import torch

from stonet.operators.temporal_modes import RANGE_MARGIN, TemporalModes


def smooth_histories(count: int = 4000, past: int = 12) -> torch.Tensor:
    """Slow waves: the covariance has eigenvalues down to rounding."""
    generator = np.random.default_rng(0)
    lag, phase = np.arange(past), generator.uniform(0, 2 * np.pi, (count, 1))
    speed, size = generator.uniform(0.05, 0.2, (count, 1)), generator.normal(size=(count, 1))
    return torch.from_numpy(3 + size * np.sin(phase + speed * lag))


def moments(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return rows.mean(0), torch.cov(rows.T, correction=0)


def test_modes_of_the_training_histories_have_unit_covariance() -> None:
    rows = smooth_histories()
    modes = TemporalModes(12, 1e-12)
    modes.fit(*moments(rows))
    found = modes(rows)
    kept = found.abs().amax(0) > 0
    assert 5 < int(kept.sum()) <= 12
    covariance = torch.cov(found[:, kept].T, correction=0)
    torch.testing.assert_close(
        covariance, torch.eye(len(covariance), dtype=torch.float64), rtol=0, atol=1e-2
    )


def test_few_modes_keep_what_the_history_tells() -> None:
    """The inverse map returns the histories, up to the modes below the floor."""
    rows = smooth_histories()
    mean, covariance = moments(rows)
    modes = TemporalModes(12, 1e-12)
    modes.fit(mean, covariance)
    variance, vectors = torch.linalg.eigh(covariance)
    back = modes(rows) @ (vectors.flip(1) * variance.flip(0).clamp(min=0).sqrt()).T + mean
    torch.testing.assert_close(back, rows, rtol=0, atol=1e-5)


def test_modes_below_the_floor_are_zero() -> None:
    rows = smooth_histories()
    modes = TemporalModes(12, 1e-2)
    modes.fit(*moments(rows))
    assert not modes(rows)[:, -6:].any()


def test_noise_shrinks_small_modes_and_leaves_large_ones() -> None:
    """(Lambda + nu)^(-1/2): half the variance where nu equals the eigenvalue."""
    covariance = torch.diag(torch.tensor([4.0, 1.0], dtype=torch.float64))
    modes = TemporalModes(2, 0.0)
    modes.fit(torch.zeros(2, dtype=torch.float64), covariance, noise=1.0)
    scale = modes(torch.eye(2, dtype=torch.float64)).abs().amax(0)
    torch.testing.assert_close(scale, torch.tensor([1 / 5**0.5, 1 / 2**0.5], dtype=torch.float64))


def test_values_beyond_the_training_range_are_limited() -> None:
    rows = smooth_histories()
    modes = TemporalModes(12, 1e-12)
    modes.fit(*moments(rows))
    inside = modes(rows)
    modes.fit_range(rows)
    assert torch.equal(modes(rows), inside)
    far = modes(1e6 * torch.ones(1, 12, dtype=torch.float64))
    torch.testing.assert_close(
        far.abs().amax(), (RANGE_MARGIN * inside.abs().amax(0)).amax(), rtol=1e-6, atol=0
    )
    assert (far.abs() <= RANGE_MARGIN * inside.abs().amax(0) + 1e-12).all()


def test_float32_histories_are_projected_in_float64() -> None:
    rows = smooth_histories().float()
    modes = TemporalModes(12, 1e-12)
    modes.fit(*moments(rows.double()))
    torch.testing.assert_close(modes(rows).double(), modes(rows.double()), rtol=1e-6, atol=1e-6)
