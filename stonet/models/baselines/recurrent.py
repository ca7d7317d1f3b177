"""Recurrent baselines: an encoder reads the past, a decoder writes the future, both stacks of cells.

    h_t = cell(x_t, h_{t-1})      over the past, from h = 0
    y_t = Linear(h_t),  h_t = cell(y_{t-1}, h_{t-1})      over the future, from y = 0 ("GO")

In training the decoder is at times shown the label instead of its own y_{t-1} (scheduled sampling,
Bengio et al. 2015), less and less often: at the end it must live on its own forecasts.

Deviations from the papers' code: encoder and decoder have cells of their own (with baseline.legacy
they share one stack); the decoder also sees the calendar of the time it forecasts; labels are
shown less and less within the training at hand, however long that is.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from stonet.config import Config
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.models.baselines.base import GridForecaster, Inputs, dense
from stonet.models.forecaster import Supervision
from stonet.system.devices import in_float32

HALFWAY, DECAY = 0.25, 0.05  # shares of the training: labels in half of the cases, and how abruptly
State = Float[Tensor, "node batch hidden"]


class Cell(nn.Module, ABC):
    """One step of one layer."""

    @abstractmethod
    def forward(self, x: Float[Tensor, "node batch input"], h: State, operators: Any) -> State:
        """The next state; `operators` is what `prepare` gave."""

    def prepare(self, operators: Any) -> Any:
        """What is the same in all steps of a forecast, made once; most cells have no such thing."""
        return operators


class GraphGRU(Cell):
    """A gated recurrent unit whose matrices act on a point and its surroundings.

        z, r = sig(W S[x, h] + b),  c = tanh(V S[x, r h] + d),  h' = z h + (1 - z) c

    where S[x] are `terms` operators on the graph applied to x, side by side.

    Args:
        inputs, hidden: features of x and of h.
        terms: how many operators S has.
        spread: (x, operators) to S[x].
        two_biases: one for x and one for h, as torch.nn.GRU has them.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        terms: int,
        spread: Callable[[Tensor, Any], Tensor],
        two_biases: bool = False,
    ) -> None:
        super().__init__()
        self.spread = spread
        self.see = dense(terms * inputs, hidden, maps=3)  # x to z, r, c
        self.keep = dense(terms * hidden, hidden, maps=2, bias=two_biases)  # h to z, r
        self.renew = dense(terms * hidden, hidden, bias=two_biases)  # r h to c
        nn.init.ones_(self.see.bias[: 2 * hidden])  # states begin as long memories

    def forward(self, x: Float[Tensor, "node batch input"], h: State, operators: Any) -> State:
        seen = self.see(self.spread(x, operators))
        split = 2 * h.shape[-1]
        gates = torch.sigmoid(seen[..., :split] + self.keep(self.spread(h, operators)))
        z, r = gates.chunk(2, dim=-1)
        c = torch.tanh(seen[..., split:] + self.renew(self.spread(r * h, operators)))
        return in_float32(torch.lerp)(c, h, z)


class Recurrent(GridForecaster):
    """An encoder and a decoder of stacked cells.

    Args:
        config, time_spec, channels, nodes: as for every baseline.
        cell: makes a cell from its numbers of inputs and of hidden features.
        hidden: of every layer, unless baseline.hidden says otherwise.
        layers: of either stack, unless baseline.layers says otherwise.
        entry: features that the encoder sees where they are not the decoder's; then, two stacks.
    """

    def __init__(
        self,
        config: Config,
        time_spec: TimeSpec,
        channels: int,
        nodes: Points,
        cell: Callable[[int, int], Cell],
        hidden: int = 64,
        layers: int = 2,
        entry: int | None = None,
    ) -> None:
        super().__init__(config, time_spec, channels, nodes)
        self.hidden = config.baseline.hidden or hidden
        inputs = [channels + self.extra] + [self.hidden] * ((config.baseline.layers or layers) - 1)
        seen = [entry or inputs[0], *inputs[1:]]
        self.encoder = nn.ModuleList(cell(width, self.hidden) for width in seen)
        one = config.baseline.legacy and entry is None
        self.decoder = None if one else nn.ModuleList(cell(w, self.hidden) for w in inputs)
        self.readout = nn.Linear(self.hidden, channels)
        nn.init.zeros_(self.readout.bias)
        nn.init.zeros_(self.readout.weight)  # training starts from the mean, or from the base

    def roll(
        self, inputs: Inputs, operators: Any, supervision: Supervision | None
    ) -> Float[Tensor, "batch future node channel"]:
        past = inputs.past.permute(1, 2, 0, 3).contiguous()  # past node batch feature
        encode = Stack(self.encoder, operators)
        zero = past.new_zeros(*past.shape[1:3], self.hidden)
        states = [zero] * len(self.encoder)
        for x in past:
            states = encode(x, states)
        decode = encode if self.decoder is None else Stack(self.decoder, operators)
        return self._decode(inputs, decode, states, supervision)

    def _decode(
        self, inputs: Inputs, decode: Stack, states: list[State], supervision: Supervision | None
    ) -> Float[Tensor, "batch future node channel"]:
        batch, _, nodes, _ = inputs.past.shape
        shown = labels_shown(supervision, self.time_spec.horizon)
        value = inputs.past.new_zeros(nodes, batch, self.channels)  # GO
        forecast = []
        for step in range(self.time_spec.horizon):
            time_spec = inputs.time_spec[:, step].expand(nodes, -1, -1)
            states = decode(torch.cat([value, time_spec], dim=-1), states)
            value = self.readout(states[-1])
            forecast.append(value)
            if supervision is not None and shown[step]:
                value = corrected(value, supervision.target[:, step], supervision.mask[:, step])
        return torch.stack(forecast).permute(2, 0, 1, 3)  # from future node batch channel


class Stack:
    """Cells one upon the other, prepared for one forecast."""

    def __init__(self, cells: nn.ModuleList, operators: Any) -> None:
        own = cast(Iterable[Cell], cells)
        self.cells = [(cell, cell.prepare(operators)) for cell in own]

    def __call__(
        self, x: Float[Tensor, "node batch feature"], states: Sequence[State]
    ) -> list[State]:
        new = []
        for (cell, operators), h in zip(self.cells, states, strict=True):
            x = cell(x, h, operators)
            new.append(x)
        return new


def label_chance(progress: float) -> float:
    """How often labels are shown after a share of the training: an inverse sigmoid, 1 to 0."""
    return 1.0 / (1.0 + math.exp((progress - HALFWAY) / DECAY))


def labels_shown(supervision: Supervision | None, horizon: int) -> list[bool]:
    """Whether the label follows each lead into the decoder."""
    if supervision is None:
        return [False] * horizon
    return [
        bool(coin < label_chance(supervision.progress))
        for coin in supervision.teacher_forcing_draws
    ]


def corrected(
    value: Float[Tensor, "node batch channel"],
    label: Float[Tensor, "batch node channel"],
    mask: Bool[Tensor, "batch node channel"],
) -> Float[Tensor, "node batch channel"]:
    """The label where there is one, else the decoder's own value."""
    return torch.where(mask.transpose(0, 1), label.transpose(0, 1).to(value.dtype), value)
