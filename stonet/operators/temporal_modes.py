r"""Temporal modes: histories as uncorrelated numbers of order one.

    z = (Lambda + nu)^(-1/2) V' (past - mean),    C = V Lambda V'

C is the covariance of histories. The past of a smooth field is nearly redundant: its eigenvalues
fall to 1e-11 of the first, and the small ones (second differences, for example) carry much of what
a forecast needs. Plain values are therefore a hopeless basis for gradient descent, and these modes
a good one. Everything is computed in float64, since small modes are differences of large numbers.

nu is the variance of the errors that filled gaps leave: modes below it are noise and stay small.
A mode is limited to the range that it had in training: beyond it, nothing was learned.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from stonet.system.devices import in_float32

RANGE_MARGIN = 1.5  # by which a mode may exceed its largest value in training


class TemporalModes(nn.Module):
    """The linear map from histories to modes; its numbers are buffers, set by `fit`.

    Args:
        width: numbers of a history, and so the largest number of modes.
        floor: smallest eigenvalue that is kept, as a share of the first.
    """

    mean: Tensor
    whitening: Tensor
    limit: Tensor

    def __init__(self, width: int, floor: float) -> None:
        super().__init__()
        self.width, self.floor = width, floor
        self.register_buffer("mean", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("whitening", torch.eye(width, dtype=torch.float64))
        self.register_buffer("limit", torch.full((width,), torch.inf, dtype=torch.float64))

    @in_float32
    def forward(self, history: Float[Tensor, "*shape both"]) -> Float[Tensor, "*shape mode"]:
        """Z of every history. Modes below the floor are zero.

        Args:
            history: of any points.
        """
        modes = (history.double() - self.mean) @ self.whitening
        return modes.clamp(-self.limit, self.limit).to(history.dtype)

    @torch.no_grad()
    def fit(
        self,
        mean: Float64[Tensor, " both"],
        covariance: Float64[Tensor, "both both"],
        noise: float = 0.0,
    ) -> None:
        """Set the modes, those of largest variance first.

        Args:
            mean: of the histories.
            covariance: of the histories.
            noise: nu, the error variance of a history's numbers, averaged over them.
        """
        self.mean.copy_(mean)
        self.whitening.copy_(whitening(covariance, self.floor, noise))

    @torch.no_grad()
    def fit_range(self, histories: Float[Tensor, "row both"]) -> None:
        """Limit each mode to its largest value among these histories, with a margin.

        Args:
            histories: of the training part.
        """
        modes = (histories.double() - self.mean) @ self.whitening
        self.limit.copy_(RANGE_MARGIN * modes.abs().amax(0))


def whitening(
    covariance: Float64[Tensor, "feature feature"],
    floor: float,
    noise: float = 0.0,
    least: float = 0.0,
) -> Float64[Tensor, "feature mode"]:
    """V (Lambda + nu)^(-1/2) of a covariance V Lambda V', largest variance first.

    Modes that are not kept are zero; the first one is kept if it has any variance.

    Args:
        covariance: of the features.
        floor: smallest variance that is kept, as a share of the first.
        noise: nu, by which small modes are shrunk.
        least: smallest variance that is kept.
    """
    variance, vectors = torch.linalg.eigh(covariance)
    variance, vectors = variance.flip(0), vectors.flip(1)
    kept = variance > max(floor * float(variance[0]), least, 0.0)
    kept[0] = variance[0] > 0
    return vectors * torch.where(kept, (variance.clamp(min=0) + noise).rsqrt(), 0.0)
