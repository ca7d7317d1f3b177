"""The loss: the paper's two means over observed values."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.small import quick, small_dataset

from stonet.models.forecaster import Output
from stonet.training.loss import error_sums, masked_loss
from stonet.training.task import Task


def test_the_loss_is_the_papers_formula_over_observed_values() -> None:
    windows = Task.of(small_dataset(), quick()).windows("train")
    chosen = np.array([3, 4, 5, 20])
    batch, (target, mask) = windows.inputs(chosen), windows.targets(chosen)
    assert len(batch.frames) < batch.past.numel() and not mask.all()  # shared frames, and gaps
    output = Output(torch.randn_like(target), torch.randn_like(batch.frames))
    assert output.reconstruction is not None
    inputs, outputs = [], []
    values, observed = windows.at(np.arange(len(windows.times)))
    for window, start in enumerate(windows.starts[chosen]):
        for lag in range(6):
            error = output.reconstruction[batch.past[window, lag]] - values[start + lag]
            inputs += error[observed[start + lag]].abs().tolist()
        for lead in range(4):
            error = output.forecast[window, lead] - values[start + 6 + lead]
            outputs += error[observed[start + 6 + lead]].abs().tolist()
    (loss,), value = masked_loss([error_sums(output, batch, target, mask, 0.3)], 0.3)
    assert float(value) == pytest.approx(0.3 * np.mean(inputs) + np.mean(outputs), rel=1e-6)
    assert float(loss) == float(value)
    plain = masked_loss([error_sums(output, batch, target, mask, 0.0)], 0.0)[1]
    assert float(plain) == pytest.approx(np.mean(outputs), rel=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_the_reconstruction_has_a_gradient_only_if_it_has_weight(alpha: float) -> None:
    windows = Task.of(small_dataset(), quick()).windows("train")
    chosen = np.arange(2)
    batch, (target, mask) = windows.inputs(chosen), windows.targets(chosen)
    reconstruction = torch.zeros_like(batch.frames, requires_grad=True)
    forecast = torch.zeros_like(target, requires_grad=True)
    sums = error_sums(Output(forecast, reconstruction), batch, target, mask, alpha)
    masked_loss([sums], alpha)[0][0].backward()
    assert forecast.grad is not None and (reconstruction.grad is not None) == bool(alpha)
