"""Optimisers: AdamW; or Muon for inner matrices and AdamW for the other weights.

Muon (K. Jordan et al., 2024) replaces the momentum of a matrix by the nearest orthogonal matrix, so
that all directions are learned at one rate. `torch.optim.Muon` computes in bfloat16. On a processor
with instructions for it (AVX512-BF16) that takes 0.6 to 0.7 of the time of float32 (128 x 128: 0.38
against 0.64 ms; 64 x 512: 0.36 against 0.49), with AVX512 only 1.6 times as long, with AVX2 only 15
to 20 times. And it cannot skip an update on the device. Hence our own, in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from stonet.config import TrainConfig
from stonet.models.forecaster import Forecaster

MIN_SIDE = 16  # of a matrix that Muon updates
MOMENTUM = 0.95
ITERATIONS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of x, x^3 and x^5 in one Newton-Schulz iteration
RMS = 0.2  # of an update's entries at learning rate 1, as with Adam
ADAM_BETAS, BESIDE_MUON_BETAS = (0.9, 0.999), (0.9, 0.98)


def optimisers(model: Forecaster, config: TrainConfig) -> list[Optimizer]:
    """The optimisers of all parameters that require a gradient; none for a model without any.

    Each skips an update if its `found_inf` is 1, without reading it on the host.

    Args:
        model: names the weights that Muon leaves out (`adam_only`).
        config: `optimiser`, `lr` and `decay`; the model's own where they are not set.
    """
    lr = config.lr or model.lr
    decay = model.decay if config.decay is None else config.decay
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    muon = config.optimiser == "muon" or (config.optimiser == "auto" and model.muon)
    inner = [p for name, p in named if muon and _is_inner(name, p, model.adam_only)]
    chosen = set(map(id, inner))
    others = [p for _, p in named if id(p) not in chosen]
    betas = BESIDE_MUON_BETAS if muon else ADAM_BETAS
    made: list[Optimizer] = [Muon(inner, lr, decay)] if inner else []
    if others:  # fused: it can skip an update without a transfer to the host
        made.append(AdamW(others, lr=lr, betas=betas, weight_decay=decay, fused=True))
    return made


def _is_inner(name: str, parameter: nn.Parameter, excluded: tuple[str, ...]) -> bool:
    """Whether Muon updates this parameter."""
    wide = parameter.ndim == 2 and min(parameter.shape) >= MIN_SIDE
    return wide and not (excluded and name.startswith(excluded))


class Muon(Optimizer):
    """Orthogonalised momentum, with Nesterov's look ahead and decoupled weight decay.

    Args:
        parameters: matrices.
        lr: learning rate.
        decay: weight decay, relative to the learning rate.
    """

    found_inf: Tensor | None = None  # 1: skip the update

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, decay: float = 0.0) -> None:
        super().__init__(parameters, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient.

        Args:
            closure: not used; PyTorch's interface has it.
        """
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is not None:
                    self._update(matrix, group["lr"], group["decay"])

    def _update(self, matrix: nn.Parameter, lr: float, decay: float) -> None:
        state, gradient = self.state[matrix], matrix.grad
        assert gradient is not None
        if not state:
            state["momentum"] = torch.zeros_like(matrix)
        momentum = gradient + MOMENTUM * state["momentum"]
        direction = orthogonalised(gradient + MOMENTUM * momentum)
        rate = lr * RMS * math.sqrt(max(matrix.shape))
        updated = (1 - lr * decay) * matrix - rate * direction
        if self.found_inf is not None:
            skip = self.found_inf > 0
            momentum = torch.where(skip, state["momentum"], momentum)
            updated = torch.where(skip, matrix, updated)
        state["momentum"].copy_(momentum)
        matrix.copy_(updated)


def orthogonalised(matrix: Float[Tensor, "m n"]) -> Float[Tensor, "m n"]:
    """Nearly U V^T of the singular value decomposition U S V^T: singular values about 1.

    Five Newton-Schulz iterations; values of S below 1 % of its norm stay smaller.

    Args:
        matrix: a gradient or momentum.
    """
    a, b, c = COEFFICIENTS
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = wide / wide.norm().clamp(min=1e-30)
    for _ in range(ITERATIONS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x if wide is matrix else x.T
