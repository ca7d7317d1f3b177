"""What training minimises: masked mean absolute errors of forecast and reconstruction."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from stonet.data.batch import Batch
from stonet.models.forecaster import Output, masked_mae

Sums = tuple[Float[Tensor, " term"], Float[Tensor, " term"]]  # of errors, of how many there are


def masked_loss(
    parts: Sequence[Sums], alpha: float
) -> tuple[list[Float[Tensor, ""]], Float[Tensor, ""]]:
    r"""What is minimised, a summand for each part of the windows, and its value.

        mean |forecast - future| + alpha * mean |reconstruction - past|

    Each is a mean over the observed values of all windows, in all parts and processes, in
    normalised units; a frame that several windows share counts once for each of them.
    """
    sums = torch.stack([torch.stack(part) for part in parts]).sum(0).detach()
    processes = dist.get_world_size() if dist.is_initialized() else 1
    if processes > 1:
        dist.all_reduce(sums)
    total = sums[1].clamp(min=1)
    weights = torch.ones_like(total)
    weights[1:] = alpha
    # DDP averages gradients over processes: times their number makes it a sum
    losses = [(errors / total * weights).sum() * processes for errors, _ in parts]
    return losses, (sums[0] / total * weights).sum()


def error_sums(output: Output, batch: Batch, target: Tensor, mask: Tensor, alpha: float) -> Sums:
    """Summed errors and their counts: of the forecast; of the reconstruction, if it has a weight.

    Only nodes that have a target count: a tile's core, which comes first.
    """
    terms = [torch.stack(masked_mae(output.forecast, target, mask))]
    if alpha and output.reconstruction is not None:
        core, batch = target.shape[2], output.inputs or batch
        truth, seen = batch.frames[:, :core], batch.seen[:, :core]
        past = batch.past.flatten()
        uses = truth.new_zeros(len(truth)).index_add(0, past, truth.new_ones(len(past)))
        times = uses[:, None, None]
        terms.append(torch.stack(masked_mae(output.reconstruction[:, :core], truth, seen, times)))
    errors, counts = torch.stack(terms, dim=1)
    return errors, counts
