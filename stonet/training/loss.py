"""The training loss: masked mean absolute errors of forecast and reconstruction."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from stonet.data.batch import Batch
from stonet.models.forecaster import Output, masked_mae

Sums = tuple[Float[Tensor, " term"], Float[Tensor, " term"]]  # of |errors|, and their weights


def masked_loss(
    parts: Sequence[Sums], alpha: float
) -> tuple[list[Float[Tensor, ""]], Float[Tensor, ""]]:
    r"""The loss of a step from the error sums of its parts.

        mean |forecast - future| + alpha * mean |reconstruction - past|

    Both means are over the observed values of all windows, in all parts and processes, in
    normalised units. A frame that several windows share counts once for each of them.

    Args:
        parts: `error_sums` of each micro-batch.
        alpha: weight of the reconstruction.

    Returns:
        the summand of each part, to be differentiated; the value of the loss, detached.
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
    """Sums of |error| and of weights, for the forecast and (if alpha > 0) the reconstruction.

    Only nodes with a target count: the core of a tile, which comes first.

    Args:
        output: of the model.
        batch: inputs.
        target: values after the issue time.
        mask: of the target.
        alpha: weight of the reconstruction.
    """
    terms = [torch.stack(masked_mae(output.forecast, target, mask))]
    if alpha and output.reconstruction is not None:
        core, batch = target.shape[2], output.inputs or batch
        truth, observed = batch.frames[:, :core], batch.seen[:, :core]
        past = batch.past.flatten()
        uses = truth.new_zeros(len(truth)).index_add(0, past, truth.new_ones(len(past)))
        weight = uses[:, None, None]  # windows that share the frame
        reconstruction = output.reconstruction[:, :core]
        terms.append(torch.stack(masked_mae(reconstruction, truth, observed, weight)))
    errors, counts = torch.stack(terms, dim=1)
    return errors, counts
