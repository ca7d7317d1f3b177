r"""The forward pass of STONet in plain tensor operations, from values in the data's units.

It shares the weights of the trained network. Everything that depends on positions is an input, so
that the file serves any stations and places: neighbours as tables of their positions and of the
features of their edges, the levels, kriging weights, and places (`inputs.py` makes them). What was
estimated from the training data is stored: scaling, the whitening of the past, the anchor and its
errors. The past has no gaps: they are filled beforehand, and `missing` tells where.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import gelu, pad

from stonet.data.durations import DAY
from stonet.data.scaling import Scaler
from stonet.data.solar_position import J2000
from stonet.linear.local_polynomials import NUM_FITS
from stonet.linear.regression import LinearForecast
from stonet.models.anchor import between_knots
from stonet.models.point_inputs import harmonics
from stonet.models.stonet import MIN_CHANGE, STONetwork
from stonet.operators.kernel_sum import KernelSum
from stonet.operators.multipole_passes import KernelPass, MultipoleLayer

Inputs = Mapping[str, Tensor]


class OnnxNetwork(nn.Module):
    """The network as it is exported.

    Args:
        network: a trained STONet.
        scaler: of its training.
        names: of the inputs, in their order.
    """

    mean: Tensor
    std: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, network: STONetwork, scaler: Scaler, names: tuple[str, ...]) -> None:
        super().__init__()
        self.network, self.names = network.eval(), names
        self.time_spec, self.channels = network.time_spec, network.channels
        none = torch.full((self.channels,), torch.inf, dtype=torch.float32)
        bounded = scaler.denormalise(torch.stack([-none, none]).numpy())
        for name, values in {"mean": scaler.mean, "std": scaler.std}.items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64))
        for name, row in zip(("low", "high"), torch.from_numpy(bounded), strict=True):
            finite = row.clamp(-torch.finfo(row.dtype).max, torch.finfo(row.dtype).max)
            self.register_buffer(name, finite)

    def forward(self, *tensors: Tensor) -> Float[Tensor, "window future query channel"]:
        """The forecast in the data's units, within their range.

        Args:
            *tensors: the inputs, in the order of `names`.
        """
        given = dict(zip(self.names, tensors, strict=True))
        network = self.network
        history = ((given["values"].double() - self.mean) / self.std).float().flip(1)
        rows = history.permute(2, 0, 1, 3).flatten(2)  # node window (lag channel)
        modes = self._modes(rows)
        missing = given["missing"].transpose(0, 1)
        inputs = [modes, *self._at_sites(given, "node"), missing]
        latent = network.lift(torch.cat(inputs, dim=-1))
        for layer in range(len(network.layers)):
            latent = self._encode(latent, layer, given)
        anchor = network._own_anchor(history).permute(2, 0, 1, 3).flatten(2)
        forecast = self._decode(latent, modes, anchor, history, given)
        scaled = forecast.permute(1, 2, 0, 3).double() * self.std + self.mean
        return torch.minimum(torch.maximum(scaled.float(), self.low), self.high)

    def _modes(self, rows: Float[Tensor, "node window both"]) -> Float[Tensor, "node window mode"]:
        """Z of every history."""
        modes = self.network.modes
        z = (rows.double() - modes.mean) @ modes.whitening
        return torch.minimum(torch.maximum(z, -modes.limit), modes.limit).float()

    def _encode(
        self, latent: Float[Tensor, "node window latent"], number: int, given: Inputs
    ) -> Float[Tensor, "node window latent"]:
        """One multipole layer."""
        layer = self.network.layers[number]
        assert isinstance(layer, MultipoleLayer)
        counts = range(len(layer.within))
        level = [latent[given[f"members_{k}"]] for k in counts]
        level = [_pass(layer.within[k], level[k], level[k], f"within_{k}", given) for k in counts]
        for k in counts[:-1]:
            level[k + 1] = _pass(layer.up[k], level[k + 1], level[k], f"up_{k}", given)
        for k in reversed(counts[:-1]):
            level[k] = _pass(layer.down[k], level[k], level[k + 1], f"down_{k}", given)
        return torch.cat(level)[given["restore"]]

    def _decode(
        self,
        latent: Float[Tensor, "node window latent"],
        modes: Float[Tensor, "node window mode"],
        anchor: Float[Tensor, "node window knot_channel"],
        history: Float[Tensor, "window lag node channel"],
        given: Inputs,
    ) -> Float[Tensor, "query window future channel"]:
        """Anchor + s (<b, tau> / sqrt(R) + c), normalised."""
        network, lead = self.network, given["lead"][None]
        parts = (latent, modes, anchor)
        has_history = given["own"] < latent.shape[0]
        together = torch.cat(parts, dim=-1)
        own = pad(together, (0, 0, 0, 0, 0, 1))[given["own"]]
        kriged = _weighted(together, given["kriging_index"], given["kriging_weight"])
        at_queries = torch.where(has_history[:, None, None], own, kriged)
        here, z, at_leads = at_queries.split([part.shape[-1] for part in parts], dim=-1)
        at_leads = at_leads.unflatten(-1, (-1, self.channels))
        state = [here, z, *self._at_sites(given, "query")]
        scale = torch.where(has_history[:, None, None], network.scale[0], network.scale[1])
        if network.base is not None:
            now = at_leads
            at_leads = self._linear(network.base, history, given).transpose(0, 1)
            lower, upper = network.base.lower, network.base.upper
            at_leads = torch.minimum(torch.maximum(at_leads, lower), upper).float()
            change = (at_leads - now)[:, :, 1:] / network.scale[0, 1:].clamp(min=MIN_CHANGE)
            state.append(change.flatten(2))
        joined, decoder = torch.cat(state, dim=-1), network.decoder
        part = torch.where(
            has_history[:, None, None], decoder.own(joined), decoder.without_history(joined)
        )
        b = part + _kernel_sum(decoder.around, latent, "around", given)
        h = b + gelu(b)
        branch = h + gelu(decoder.mix(h))
        correction = decoder(branch, lead, given["query_place"], self._ahead(given))
        return between_knots(at_leads, lead) + between_knots(scale[:, None], lead) * correction

    def _linear(
        self,
        base: LinearForecast,
        history: Float[Tensor, "window lag node channel"],
        given: Inputs,
    ) -> Tensor:
        """The linear forecast at the trained leads: (window, query, lead, channel)."""
        rows = history.permute(2, 0, 1, 3).flatten(2)  # node window (lag channel)
        own = given["own"] < rows.shape[0]
        index, weight = given["stencil_index"], given["stencil_weight"]
        near = rows[index].flatten(2)  # query near (window lag channel)
        fits = (weight @ near).unflatten(-1, (history.shape[0], history.shape[1], -1))
        fits = fits.permute(2, 0, 3, 1, 4)  # window query lag fit channel
        kriged, narrow = fits[:, :, :, 0], fits[:, :, :, 1]
        at_node = pad(history.transpose(1, 2), (0, 0, 0, 0, 0, 1))[:, given["own"]]
        past = torch.where(own[None, :, None, None], at_node, kriged)
        wide = fits[:, :, : base.recent_lags, 2:NUM_FITS]
        columns = [past.flatten(2), narrow.flatten(2), wide.flatten(2)]
        if base.solar_columns:
            steps = torch.arange(-base.time_spec.horizon, base.time_spec.horizon + 1)
            columns.append(self._sun(given, "query", steps).transpose(0, 1))
        columns.append(torch.ones_like(columns[0][..., :1]))
        x = torch.cat([column.double() for column in columns], dim=-1)
        missing = given["missing"]  # window node 2 channels
        share = missing[..., self.channels :].mean(-1)
        many = share[:, index].mean(-1) > 2 * base.history.usual_gaps
        late = pad((missing[..., : self.channels] > 0).all(-1), (0, 1))[:, given["own"]]
        kind = 4 * many.long() + 2 * late.long() + (~own).long()
        table = base.beta[:, self._hour(given) % base.num_hours].flatten(3)  # kind window ...
        every = torch.stack([x @ table[k] for k in range(len(table))])
        wanted = kind[None, ..., None].expand(-1, -1, -1, every.shape[-1])
        return every.gather(0, wanted)[0].unflatten(-1, tuple(base.beta.shape[3:]))

    def _at_sites(self, given: Inputs, kind: str) -> list[Tensor]:
        """a(x, t0) and the sun, at every point and window."""
        place, windows = given[f"{kind}_place"], given["values"].shape[0]
        phase = self._phases(given, torch.zeros(1))[:, 0]  # window cycle
        phase = phase[None].expand(place.shape[0], -1, -1)
        if self.time_spec.daily and f"{kind}_longitude" in given:
            turned = phase[..., -1:] + given[f"{kind}_longitude"][:, None, None].double()
            phase = torch.cat([phase[..., :-1], turned], dim=-1)
        time = harmonics(phase.float())
        here = place[:, None].expand(-1, windows, -1)
        parametric = self.network.parametric(torch.cat([here, time], dim=-1))
        if not self.time_spec.sunny:
            return [parametric]
        return [parametric, self._sun(given, kind, torch.arange(self.time_spec.horizon + 1))]

    def _ahead(self, given: Inputs) -> Float[Tensor, "window future feature"]:
        """Harmonics of the target times."""
        return harmonics(self._phases(given, given["lead"]).float())

    def _phases(self, given: Inputs, lead: Float[Tensor, " future"]) -> Tensor:
        """Phases of the calendar some steps after the issue time: (window, future, cycle)."""
        windows = given["values"].shape[0]
        if not self.time_spec.periods:
            return torch.zeros(windows, lead.shape[0], 0, dtype=torch.float64)
        days = self._days(given)[:, None] + lead.double() * (self.time_spec.step / DAY)
        turns = [days * (DAY / period) for period in self.time_spec.periods]
        return torch.stack([turn - torch.floor(turn) for turn in turns], dim=-1)

    def _days(self, given: Inputs) -> Tensor:
        """Days of the issue times since 1970."""
        return given["issue_time"].double() / DAY

    def _hour(self, given: Inputs) -> Int[Tensor, " window"]:
        """Hour of the day of the issue time; 0 if the step does not resolve the day."""
        if not self.time_spec.daily:
            return torch.zeros(given["values"].shape[0], dtype=torch.int64)
        days = self._days(given)
        return torch.floor((days - torch.floor(days)) * 24 + 1e-6).long() % 24

    def _sun(
        self, given: Inputs, kind: str, steps: Int[Tensor, " knot"]
    ) -> Float[Tensor, "point window knot"]:
        """The sine of the solar elevation, 0 at night; cosines as sines of a quarter turn more."""
        days = self._days(given)[:, None] + steps.double() * (self.time_spec.step / DAY)
        d = days - J2000 / DAY
        quarter, degree = math.pi / 2, math.pi / 180
        anomaly = (357.528 + 0.9856003 * d) * degree
        centre = 1.915 * torch.sin(anomaly) + 0.020 * torch.sin(2 * anomaly)
        longitude = (280.460 + 0.9856474 * d + centre) * degree
        tilt = (23.439 - 4e-7 * d) * degree
        sidereal = d - torch.floor(d) + 0.7790572733 + 0.002737909350795 * d
        turn = 2 * math.pi * (sidereal - torch.floor(sidereal))
        x = torch.sin(longitude + quarter)
        y = torch.sin(tilt + quarter) * torch.sin(longitude)
        cosine, sine = torch.sin(turn + quarter), torch.sin(turn)
        vector = [
            x * cosine + y * sine,
            y * cosine - x * sine,
            torch.sin(tilt) * torch.sin(longitude),
        ]
        sun = torch.stack(vector, dim=-1).float()  # window knot 3
        elevation = given[f"{kind}_direction"] @ sun.flatten(0, 1).T
        return elevation.unflatten(-1, (sun.shape[0], sun.shape[1])).clamp(min=0)


# Sizes are read as `x.shape[0]`: the converter takes `len(x)` for a constant.


def _pass(step: nn.Module, values: Tensor, sources: Tensor, name: str, given: Inputs) -> Tensor:
    """A kernel pass on the neighbours of this name."""
    assert isinstance(step, KernelPass)
    y = step.own(values) + _kernel_sum(step.kernel, sources, name, given)
    return values + y + gelu(y)


def _kernel_sum(kernel: KernelSum, values: Tensor, name: str, given: Inputs) -> Tensor:
    """sum_k A_k mean_j h_k v_j, over tables of neighbours whose missing ones are a zero row."""
    index, edge = given[f"{name}_index"], given[f"{name}_edge"]
    gathered = pad(values, (0, 0, 0, 0, 0, 1))[index]  # target degree window width
    weight = kernel.weights(edge).transpose(1, 2)  # target k degree
    sums = (weight @ gathered.flatten(2)).unflatten(-1, (values.shape[1], values.shape[2]))
    count = (index < values.shape[0]).sum(1).clamp(min=1).to(values.dtype)
    return kernel.map((sums.transpose(1, 2) / count[:, None, None, None]).flatten(2))


def _weighted(values: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    """sum_j weight_ij values_j at each target i."""
    near = values[index]  # query near window width
    return (weight[:, None] @ near.flatten(2)).unflatten(-1, (values.shape[1], -1))[:, 0]
