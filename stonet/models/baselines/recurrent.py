"""Recurrent baselines: an encoder of stacked cells reads the past, a decoder writes the future.

    h_t = cell(x_t, h_{t-1})                               over the past, from h = 0
    h_t = cell(y_{t-1}, h_{t-1}),   y_t = Linear(h_t)      over the future, from y = 0 ("GO")

In training the decoder sometimes gets the target instead of its own y_{t-1} (scheduled sampling).
The probability decreases to zero, since a forecast has no targets.

References:
    S. Bengio, O. Vinyals, N. Jaitly, N. Shazeer, Scheduled Sampling for Sequence Prediction with
    Recurrent Neural Networks, NIPS 2015.

Deviations:
    - Encoder and decoder have different cells; the papers' code shares one stack (baseline.legacy).
    - The decoder also gets the calendar and the sun of the time that it forecasts, and the place.
    - The probability of targets decreases with the share of the training, whatever its length.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from stonet.config import Config
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.models.baselines.base import GraphBaseline, Inputs, Operators, dense
from stonet.models.forecaster import Supervision
from stonet.system.devices import in_float32

SAMPLING_MIDPOINT = 0.25  # share of the training after which every second value is a target
SAMPLING_WIDTH = 0.05  # share of the training over which the probability falls
State = Float[Tensor, "node batch hidden"]
Prepared = TypeVar("Prepared")  # what a cell makes of the operators, once per forecast


class Cell(nn.Module, ABC, Generic[Operators, Prepared]):
    """One step of one layer."""

    @abstractmethod
    def forward(self, x: Float[Tensor, "node batch input"], h: State, operators: Prepared) -> State:
        """The next state; `operators` is the result of `prepare`.

        Args:
            x: inputs of the step.
            h: the state before.
            operators: of the graph.
        """

    @abstractmethod
    def prepare(self, operators: Operators) -> Prepared:
        """Everything that is the same in all steps of a forecast.

        Args:
            operators: of the graph.
        """


class GraphGRU(Cell[Operators, Operators]):
    """A gated recurrent unit whose matrices act on graph convolutions.

        z, r = sig(W S[x, h] + b),  c = tanh(V S[x, r h] + d),  h' = z h + (1 - z) c

    where S[x] concatenates `terms` operators on the graph, applied to x.

    Args:
        inputs: features of x.
        hidden: features of h.
        terms: number of operators in S.
        convolve: (x, operators) to S[x].
        two_biases: one for x and one for h, as in torch.nn.GRU.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        terms: int,
        convolve: Callable[[Tensor, Operators], Tensor],
        two_biases: bool = False,
    ) -> None:
        super().__init__()
        self.convolve = convolve
        self.input_map = dense(terms * inputs, hidden, maps=3)  # x to z, r, c
        self.state_map = dense(terms * hidden, hidden, maps=2, bias=two_biases)  # h to z, r
        self.reset_map = dense(terms * hidden, hidden, bias=two_biases)  # r h to c
        nn.init.ones_(self.input_map.bias[: 2 * hidden])  # initially, states change slowly

    def prepare(self, operators: Operators) -> Operators:
        """The operators as they are."""
        return operators

    def forward(
        self, x: Float[Tensor, "node batch input"], h: State, operators: Operators
    ) -> State:
        """The next state."""
        gates = self.input_map(self.convolve(x, operators))
        split = 2 * h.shape[-1]
        from_state = self.state_map(self.convolve(h, operators))
        z, r = torch.sigmoid(gates[..., :split] + from_state).chunk(2, dim=-1)
        c = torch.tanh(gates[..., split:] + self.reset_map(self.convolve(r * h, operators)))
        return in_float32(torch.lerp)(c, h, z)


class Recurrent(GraphBaseline[Operators]):
    """An encoder and a decoder of stacked cells.

    Args:
        config: its section `baseline`.
        time_spec: step, past and horizon of the data.
        channels: of the field.
        nodes: the training points.
        cell: makes a cell from the numbers of input and hidden features.
        hidden: features of every layer, unless baseline.hidden is set.
        layers: of encoder and decoder, unless baseline.layers is set.
        encoder_inputs: features of the encoder's input, if they differ from the decoder's.
    """

    def __init__(
        self,
        config: Config,
        time_spec: TimeSpec,
        channels: int,
        nodes: Points,
        cell: Callable[[int, int], Cell[Any, Any]],
        hidden: int = 64,
        layers: int = 2,
        encoder_inputs: int | None = None,
    ) -> None:
        super().__init__(config, time_spec, channels, nodes)
        self.hidden = config.baseline.hidden or hidden
        deeper = [self.hidden] * ((config.baseline.layers or layers) - 1)
        widths = [encoder_inputs or self.input_width, *deeper]
        self.encoder = nn.ModuleList(cell(width, self.hidden) for width in widths)
        inputs = channels + self.ahead_width
        shared = config.baseline.legacy and encoder_inputs is None
        self.decoder = (
            None if shared else nn.ModuleList(cell(w, self.hidden) for w in [inputs, *deeper])
        )
        self.readout = nn.Linear(self.hidden, channels)
        nn.init.zeros_(self.readout.bias)
        nn.init.zeros_(self.readout.weight)  # training starts from the mean, or from the base

    def forecast_nodes(
        self, inputs: Inputs, operators: Operators, supervision: Supervision | None
    ) -> Float[Tensor, "batch future node channel"]:
        """Encode the past, then decode lead by lead."""
        return self._unroll(inputs, operators, supervision)

    def _unroll(
        self, inputs: Inputs, operators: Any, supervision: Supervision | None
    ) -> Float[Tensor, "batch future node channel"]:
        """The same with any operators that the cells take."""
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
        """All leads, each from the one before."""
        batch, _, nodes, _ = inputs.past.shape
        forced = forced_leads(supervision, self.time_spec.horizon)
        value = inputs.past.new_zeros(nodes, batch, self.channels)  # GO
        forecast, ahead = [], inputs.ahead().permute(1, 2, 0, 3)  # future node batch feature
        for step in range(self.time_spec.horizon):
            states = decode(torch.cat([value, ahead[step]], dim=-1), states)
            value = self.readout(states[-1])
            forecast.append(value)
            if supervision is not None and forced[step]:
                value = with_target(value, supervision.target[:, step], supervision.mask[:, step])
        return torch.stack(forecast).permute(2, 0, 1, 3)  # from future node batch channel


class Stack:
    """Stacked cells, prepared for one forecast.

    Args:
        cells: from the first layer to the last.
        operators: of the graph.
    """

    def __init__(self, cells: nn.ModuleList, operators: Any) -> None:
        own = cast(Iterable[Cell[Any, Any]], cells)
        self.cells = [(cell, cell.prepare(operators)) for cell in own]

    def __call__(
        self, x: Float[Tensor, "node batch feature"], states: Sequence[State]
    ) -> list[State]:
        """The next states of all layers."""
        new = []
        for (cell, operators), h in zip(self.cells, states, strict=True):
            x = cell(x, h, operators)
            new.append(x)
        return new


def forcing_probability(progress: float) -> float:
    """The probability of a target after a share of the training: an inverse sigmoid, 1 to 0.

    Args:
        progress: completed share of the training.
    """
    return 1.0 / (1.0 + math.exp((progress - SAMPLING_MIDPOINT) / SAMPLING_WIDTH))


def forced_leads(supervision: Supervision | None, horizon: int) -> list[bool]:
    """Whether the target of each lead is the next input of the decoder.

    Args:
        supervision: None in a forecast.
        horizon: number of leads.
    """
    if supervision is None:
        return [False] * horizon
    probability = forcing_probability(supervision.progress)
    return [bool(draw < probability) for draw in supervision.teacher_forcing_draws]


def with_target(
    value: Float[Tensor, "node batch channel"],
    target: Float[Tensor, "batch node channel"],
    mask: Bool[Tensor, "batch node channel"],
) -> Float[Tensor, "node batch channel"]:
    """The target where it is observed, else the decoder's own value.

    Args:
        value: the decoder's own.
        target: of the same lead.
        mask: of the target.
    """
    return torch.where(mask.transpose(0, 1), target.transpose(0, 1).to(value.dtype), value)
