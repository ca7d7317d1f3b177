"""What the convolutional baselines share: all past steps go in at once, all leads come out at once.

States have the layout (node, batch, time, feature): sparse operators act along the first axis, and
linear maps on the last. A convolution over time is a linear map of each stretch of steps.

The calendar enters with the past only. At the leads it is a fixed rotation of that at the issue
time, so weights that belong to a lead can make it up, and nothing new would be told.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

from stonet.models.baselines.base import Inputs, dense

SLOTS = 12  # the ASTGCN paper strides through longer pasts so that so many steps remain

States = Float[Tensor, "node batch time feature"]
Slots = Float[Tensor, "node batch slot hidden"]  # what a convolution over time leaves


def by_node(inputs: Inputs) -> States:
    """The past with the nodes first."""
    return inputs.past.permute(2, 0, 1, 3).contiguous()


def stretches(x: States, width: int, stride: int = 1) -> Float[Tensor, "node batch slot window"]:
    """Every `width` consecutive steps, feature by feature; the last stretch ends where x ends."""
    first = (x.shape[2] - width) % stride
    return x[:, :, first:].unfold(2, width, stride).flatten(3)


def unpacked(
    y: Float[Tensor, "node batch packed"], channels: int
) -> Float[Tensor, "batch future node channel"]:
    """The forecast from its packed form, lead by lead and in each the channels."""
    return y.unflatten(-1, (-1, channels)).permute(1, 2, 0, 3)


class ConvBlock(nn.Module):
    """MSTGCN's and ASTGCN's block: a graph convolution in every step, then one over time.

        g = ReLU(sum_k [T_k x] Theta_k + b),    y = LayerNorm(ReLU(conv(g) + W x + b'))

    The paper's 1 x 3 convolution for a stride of 1, wider for others so that no step is passed
    over; a stride counts from the newest step.

    Args:
        inputs, hidden: features of x and of y.
        order: K, how many terms [T_k x] there are.
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
        g = torch.relu(self.space(torch.cat(terms, dim=-1)))
        around = stretches(
            pad(g, (0, 0, self.stride, self.stride)), 2 * self.stride + 1, self.stride
        )
        here = x[:, :, (x.shape[2] - 1) % self.stride :: self.stride]
        return self.norm(torch.relu(self.time(around) + self.residual(here)))


def strides(past: int, blocks: int) -> list[int]:
    """Of each block: the first one leaves about 12 steps of a longer past, the others keep all."""
    return [max(1, past // SLOTS)] + [1] * (blocks - 1)
