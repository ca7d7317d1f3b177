r"""Surroundings: what local polynomials around a point tell beyond its own past.

    g(x)  = values, gradients and Laplacians of polynomials fitted to the neighbours, by lag
    q(x)  = (Lambda + nu)^(-1/2) V' (g - m - B z)        z: the modes of the point's own past

B is the regression of g on z, V Lambda V' the covariance of what it leaves. Second differences in
space are small differences of large numbers, hence float64. The fits leave out the point itself
(`stonet.linear.local_polynomials`), so that they exist at points without a past, too.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from stonet.data.batch import Batch
from stonet.data.time_spec import TimeSpec
from stonet.linear.local_polynomials import NUM_FITS, Stencil
from stonet.system.devices import in_float32

LAGS = 12  # newest lags of which the surroundings are used
FLOOR = 1e-12  # smallest variance of a mode, over that of the field
RANGE_MARGIN = 1.5  # by which a mode may exceed its largest value in training


class Surroundings(nn.Module):
    """The linear map from fits around a point to uncorrelated numbers; its numbers are buffers.

    Args:
        time_spec: step and past of the data.
        channels: of the field.
        modes: numbers of the own past, z.
    """

    mean: Tensor
    regression: Tensor
    whitening: Tensor
    limit: Tensor

    def __init__(self, time_spec: TimeSpec, channels: int, modes: int) -> None:
        super().__init__()
        self.lags = min(time_spec.past, LAGS)
        self.width = self.lags * NUM_FITS * channels
        exact = {"dtype": torch.float64}
        self.register_buffer("mean", torch.zeros(self.width, **exact))
        self.register_buffer("regression", torch.zeros(modes, self.width, **exact))
        self.register_buffer("whitening", torch.eye(self.width, **exact))
        self.register_buffer("limit", torch.full((self.width,), torch.inf, **exact))

    @in_float32
    def forward(
        self,
        fits: Float[Tensor, "query batch fit"],
        own: Float[Tensor, "query batch mode"],
    ) -> Float[Tensor, "query batch q"]:
        """Q at every query.

        Args:
            fits: of `fits`.
            own: z.
        """
        rest = fits.double() - self.mean - own.double() @ self.regression
        return (rest @ self.whitening).clamp(-self.limit, self.limit).to(own.dtype)

    @in_float32
    def fits(
        self,
        history: Float[Tensor, "batch lag node channel"],
        present: Tensor | None,
        batch: Batch,
        stencil: Stencil,
    ) -> Float[Tensor, "query batch fit"]:
        """G at every query of the stencil.

        Args:
            history: of the nodes, newest first; 0 where a node has none.
            present: which nodes have a history, by window; None: all.
            batch: tells whether the windows lack the same nodes.
            stencil: from nodes to queries.
        """
        same = None if present is None else all(batch.missing_pattern.same_windows)
        weights = stencil.weights(present, same)
        found = stencil.apply(history[:, : self.lags], weights)
        return found.transpose(0, 1).flatten(2)

    @torch.no_grad()
    def fit(self, fits: Float[Tensor, "row fit"], own: Float[Tensor, "row mode"]) -> None:
        """Estimate all numbers.

        Args:
            fits: g.
            own: z of the same points.
        """
        g, z = fits.double(), own.double()
        self.mean.copy_(g.mean(0))
        centred = g - self.mean
        gram = z.T @ z
        gram += 1e-9 * gram.diagonal().max() * torch.eye(len(gram), dtype=gram.dtype)
        self.regression.copy_(torch.linalg.solve(gram, z.T @ centred))
        rest = centred - z @ self.regression
        variance, vectors = torch.linalg.eigh(rest.T @ rest / len(rest))
        variance, vectors = variance.flip(0), vectors.flip(1)
        kept = variance > FLOOR * float(centred.square().mean(0).max())
        self.whitening.copy_(vectors * torch.where(kept, variance.clamp(min=0).rsqrt(), 0.0))
        self.limit.copy_(RANGE_MARGIN * (rest @ self.whitening).abs().amax(0))
