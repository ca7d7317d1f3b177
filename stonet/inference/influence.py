r"""Influence: which stations and past hours drive a forecast, by exact gradients.

    s(lead, hour, station, channel) = d forecast(lead) / d observation(hour, station, channel)

through the anchor and the network, by automatic differentiation. Sizes are compared as changes of
the forecast by one standard deviation of the input; their share of the total is the influence of a
station or of a past hour. A forecast at an end of its physical range has no influence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from stonet.data.batch import Batch
from stonet.data.dates import Times, time_label
from stonet.data.field import Field
from stonet.data.geometry import EARTH_RADIUS_KM, Points
from stonet.errors import UsageError, unknown_name
from stonet.inference.forecast import prepare
from stonet.models.forecaster import Forecaster, Graphs
from stonet.training.trained_model import TrainedModel


@dataclass(frozen=True, eq=False)
class Influence:
    """Derivatives of a forecast at one place by all observations that it is made from.

    Args:
        place: of the forecast, a single point.
        channel: that is forecast; one of `channels`.
        channels: of the observations.
        units: of the channels.
        spread: standard deviation of each channel in training.
        stations: where values were observed.
        past_times: of the observations, in nanoseconds.
        times: of the forecast.
        calendar: whether times are dates.
        forecast: in the data's units.
        sensitivity: unit of the forecast per unit of the observation; 0 where nothing was observed.
        observed: where there is an observation.
    """

    place: Points
    channel: str
    channels: tuple[str, ...]
    units: tuple[str, ...]
    spread: tuple[float, ...]
    stations: Points
    past_times: Int64[np.ndarray, " past"]
    times: Int64[np.ndarray, " future"]
    calendar: bool
    forecast: Float64[np.ndarray, " future"]
    sensitivity: Float64[np.ndarray, "future past station channel"]
    observed: Bool[np.ndarray, "past station channel"]

    @property
    def unit(self) -> str:
        """Unit of the forecast."""
        return self.units[self.channels.index(self.channel)]

    @property
    def by_station(self) -> Float64[np.ndarray, " station"]:
        """The share of each station in the influence; the sum is 1 (0 if nothing has any)."""
        return self._effects.sum((0, 2))

    @property
    def by_past(self) -> Float64[np.ndarray, " past"]:
        """The share of each past time in the influence."""
        return self._effects.sum((1, 2))

    @property
    def by_channel(self) -> Float64[np.ndarray, " channel"]:
        """The share of each channel in the influence."""
        return self._effects.sum((0, 1))

    @cached_property
    def _effects(self) -> Float64[np.ndarray, "past station channel"]:
        """Absolute effects of one standard deviation, summed over leads, as shares of the total."""
        effects = np.abs(self.sensitivity).sum(0) * np.asarray(self.spread)
        total = float(effects.sum())
        return effects / total if total else effects

    @property
    def response(self) -> Float64[np.ndarray, "future station"]:
        """Change of the forecast per unit, if a station had read higher in all of its past."""
        return self.sensitivity[..., self.channels.index(self.channel)].sum(1)

    @property
    def profile(self) -> Float64[np.ndarray, "station past"]:
        """Sensitivity to each value of the forecast's own channel, mean over the leads."""
        own = self.sensitivity[..., self.channels.index(self.channel)]
        return np.ascontiguousarray(own.mean(0).T)

    @property
    def distance(self) -> Float64[np.ndarray, " station"]:
        """Distance of each station from the place; km on a sphere."""
        unit = EARTH_RADIUS_KM if self.stations.kind == "sphere" else 1.0
        where = self.stations.geometry.distance(self.place.embedded, self.stations.embedded)
        return where * unit

    @property
    def order(self) -> Int64[np.ndarray, " station"]:
        """Positions of the stations, the most influential first."""
        return np.argsort(-self.by_station, kind="stable")

    def to_json(self) -> dict[str, Any]:
        """All results as numbers and names, stations with the greatest influence first."""
        first, second = self.place.geometry.axes
        share, response, profile = self.by_station, self.response, self.profile
        distance = self.distance
        stations = [
            {
                "name": self.stations.names[i],
                first: float(self.stations.coordinates[i, 0]),
                second: float(self.stations.coordinates[i, 1]),
                "distance": float(distance[i]),
                "share": float(share[i]),
                "response": response[:, i].tolist(),
                "profile": profile[i].tolist(),
            }
            for i in self.order.tolist()
        ]
        return {
            "place": self.place.names[0],
            "position": self.place.coordinates[0].tolist(),
            "channel": self.channel,
            "unit": self.unit,
            "issue_time": time_label(int(self.past_times[-1]), self.calendar),
            "times": [time_label(int(t), self.calendar) for t in self.times],
            "past_times": [time_label(int(t), self.calendar) for t in self.past_times],
            "forecast": self.forecast.tolist(),
            "by_past": self.by_past.tolist(),
            "by_channel": dict(zip(self.channels, self.by_channel.tolist(), strict=True)),
            "stations": stations,
        }


def influence(
    trained: TrainedModel,
    field: Field,
    at: Points,
    times: Times | None = None,
    channel: str | None = None,
) -> Influence:
    """The influence of every observation on the forecast at a place.

    The forecast is that of the model, without the correction by recent errors.

    Args:
        trained: a trained model.
        field: observations; the issue time is its last time.
        at: the place, a single point.
        times: leads, dates or nanoseconds (None: the trained leads).
        channel: that is forecast (None: the first).

    Raises:
        DataError: if the field does not fit the model, or nothing was observed of late.
        UsageError: if there is not exactly one place, or no such channel.

    Example:
        >>> found = influence(trained, field, field.points.take(np.array([0])))
        >>> found.stations.names[found.order[0]], found.by_station.max()
    """
    if len(at) != 1:
        raise UsageError(f"{len(at)} places were given; the influence is that on one. Give one.")
    channel = trained.channels[0] if channel is None else channel
    if channel not in trained.channels:
        raise unknown_name("channel", channel, trained.channels)
    number = trained.channels.index(channel)
    queries, requested, batch = prepare(trained, field, at, times)
    model = trained.model.eval()
    device = next(iter(model.state_dict().values()), torch.zeros(0)).device
    graphs = model.graphs(field.points, queries)
    forecast, gradient = sensitivities(model, batch.to(device), graphs, number)
    spread = np.asarray(trained.scaler.std)
    in_units, inside = _in_units(trained, forecast.cpu(), number)
    past = batch.past[0].numpy()
    observed = batch.seen.numpy()[past]
    scaled = gradient.cpu().double().numpy()[:, past] * (spread[number] / spread)
    latest = int(field.times[-1])
    lag = np.round(batch.lag[0].double().numpy() * trained.time_spec.step).astype(np.int64)
    return Influence(
        place=queries,
        channel=channel,
        channels=trained.channels,
        units=trained.units,
        spread=tuple(spread.tolist()),
        stations=field.points,
        past_times=latest + lag,
        times=requested,
        calendar=field.calendar,
        forecast=in_units,
        sensitivity=np.where(observed, scaled, 0.0) * inside[:, None, None, None],
        observed=observed,
    )


def _in_units(
    trained: TrainedModel, forecast: Float[Tensor, " future"], channel: int
) -> tuple[Float64[np.ndarray, " future"], Bool[np.ndarray, " future"]]:
    """The forecast of a channel in the data's units, and where its range does not limit it."""
    values = torch.zeros(len(forecast), len(trained.channels), dtype=torch.float64)
    values[:, channel] = forecast.double()
    scaler = trained.scaler
    limited = scaler.in_units(values)[:, channel].numpy()
    free = values[:, channel].numpy() * scaler.std[channel] + scaler.mean[channel]
    return limited, limited == free


def sensitivities(
    model: Forecaster, batch: Batch, graphs: Graphs, channel: int
) -> tuple[Float[Tensor, " future"], Float[Tensor, "future frame node channel"]]:
    """The normalised forecast at the only query, and its derivatives by all frames.

    Args:
        model: in the precision of the batch.
        batch: a single window.
        graphs: of the model, with a single query.
        channel: position of the forecast channel.
    """
    frames = batch.frames.detach().clone().requires_grad_()
    with torch.enable_grad():
        forecast = model(replace(batch, frames=frames), graphs).forecast[0, :, 0, channel]
    rows = []
    for value in forecast:
        row = None
        if value.requires_grad:
            row = torch.autograd.grad(value, frames, retain_graph=True, allow_unused=True)[0]
        rows.append(torch.zeros_like(frames) if row is None else row)
    return forecast.detach(), torch.stack(rows)
