"""The common part of the convolutional baselines: all past steps in, all leads out.

States have the layout (node, batch, time, feature): sparse operators act on the first axis, linear
maps on the last. A convolution over time is a linear map of each window of consecutive steps.

The calendar is an input with the past only. At a lead it is a fixed rotation of the calendar at the
issue time, which the weights of that lead can represent.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

from stonet.models.baselines.base import Inputs, dense

MAX_SLOTS = 12  # longer pasts are strided to about this many steps, as in the ASTGCN paper

States = Float[Tensor, "node batch time feature"]
Slots = Float[Tensor, "node batch slot hidden"]  # after a convolution over time


def by_node(inputs: Inputs) -> States:
    """The past in the layout of `States`.

    Args:
        inputs: of the baseline.
    """
    return inputs.past.permute(2, 0, 1, 3).contiguous()


def time_windows(x: States, width: int, stride: int = 1) -> Float[Tensor, "node batch slot window"]:
    """All windows of `width` consecutive steps, by feature, then step; the last ends at the end.

    Args:
        x: states.
        width: steps in a window.
        stride: steps from one window to the next.
    """
    first = (x.shape[2] - width) % stride
    return x[:, :, first:].unfold(2, width, stride).flatten(3)


def split_leads(
    y: Float[Tensor, "node batch packed"], channels: int
) -> Float[Tensor, "batch future node channel"]:
    """The forecast from the outputs of a linear map, ordered by lead, then channel.

    Args:
        y: outputs of the map.
        channels: number of channels.
    """
    return y.unflatten(-1, (-1, channels)).permute(1, 2, 0, 3)


class ConvBlock(nn.Module):
    """The block of MSTGCN and ASTGCN: a graph convolution at every step, then one over time.

        g = ReLU(sum_k [T_k x] Theta_k + b),    y = LayerNorm(ReLU(conv(g) + W x + b'))

    For a stride of 1 this is the paper's 1 x 3 convolution; for larger strides it is wider, so that
    every step is used. Strides count from the newest step.

    Args:
        inputs: features of x.
        hidden: features of y.
        order: K, number of terms [T_k x].
        stride: time steps of x for one of y.
    """

    def __init__(self, inputs: int, hidden: int, order: int, stride: int = 1) -> None:
        super().__init__()
        self.stride = stride
        self.space = dense(order * inputs, hidden)
        self.time = dense((2 * stride + 1) * hidden, hidden)
        self.residual = dense(inputs, hidden)
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x: States, terms: list[States]) -> Slots:
        """y, from x and the terms [T_k x].

        Args:
            x: states.
            terms: [T_k x].
        """
        g = torch.relu(self.space(torch.cat(terms, dim=-1)))
        padded = pad(g, (0, 0, self.stride, self.stride))
        around = time_windows(padded, 2 * self.stride + 1, self.stride)
        here = x[:, :, (x.shape[2] - 1) % self.stride :: self.stride]
        return self.norm(torch.relu(self.time(around) + self.residual(here)))


def strides(past: int, blocks: int) -> list[int]:
    """The stride of each block: the first reduces a long past to about `MAX_SLOTS` steps.

    Args:
        past: number of steps.
        blocks: number of blocks.
    """
    return [max(1, past // MAX_SLOTS)] + [1] * (blocks - 1)
