"""Choices: at which leads of which channel a reference forecast takes part in the forecast."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from stonet.config import Config
from stonet.data.geometry import Points
from stonet.data.time_spec import TimeSpec
from stonet.models.combination import NETWORK, Combination
from stonet.models.forecaster import Forecaster
from stonet.models.registry import REFERENCE_FORECASTS, build_model


@dataclass(frozen=True)
class Choice:
    """A reference forecast that validation favours, for some leads of a channel.

    Args:
        channel: its name.
        first_lead: number of the first lead, from 1.
        last_lead: number of the last lead.
        reference: name of the reference forecast.
        share: of the reference in the forecast; the rest is the network's.
        network_error: MAE of the network in validation, in units of the channel.
        reference_error: MAE of the mean of network and reference, with that share; or with twice
            that share, if it was not better beyond chance.
    """

    channel: str
    first_lead: int
    last_lead: int
    reference: str
    share: float
    network_error: float
    reference_error: float

    def __str__(self) -> str:
        role = "is used instead" if self.share == 1 else f"has a share of {self.share:.0%}"
        return (
            f"{self.channel}, leads {self.first_lead} to {self.last_lead}: '{self.reference}' "
            f"{role} (validation MAE {self.reference_error:.4g}, network {self.network_error:.4g})"
        )


Choices = tuple[Choice, ...]


def merged(choices: Iterable[Choice]) -> Choices:
    """The same choices; neighbouring leads with equal ones become one, with mean errors.

    Args:
        choices: in the order of channels and leads.
    """
    found: list[Choice] = []
    for choice in choices:
        last = found[-1] if found else None
        if last is not None and last.last_lead + 1 == choice.first_lead and _same(last, choice):
            found[-1] = _joined(last, choice)
        else:
            found.append(choice)
    return tuple(found)


def _same(one: Choice, other: Choice) -> bool:
    names = ("channel", "reference", "share")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _joined(one: Choice, other: Choice) -> Choice:
    """Both as one; errors are averaged over leads."""
    counts = [choice.last_lead - choice.first_lead + 1 for choice in (one, other)]

    def mean(name: str) -> float:
        values = [getattr(one, name), getattr(other, name)]
        return float(sum(v * n for v, n in zip(values, counts, strict=True)) / sum(counts))

    return replace(
        one,
        last_lead=other.last_lead,
        network_error=mean("network_error"),
        reference_error=mean("reference_error"),
    )


def check_choices(choices: Choices, channels: Sequence[str], horizon: int) -> Choices:
    """The same choices.

    Args:
        choices: to check.
        channels: of the field.
        horizon: number of trained leads.

    Raises:
        ValueError: a channel, a lead, a reference or a share does not exist.
    """
    for choice in choices:
        if choice.channel not in channels or choice.reference not in REFERENCE_FORECASTS:
            raise ValueError(f"choices name {choice.reference!r} for {choice.channel!r}")
        if not 1 <= choice.first_lead <= choice.last_lead <= horizon:
            raise ValueError(f"choices name leads {choice.first_lead} to {choice.last_lead}")
        if not 0 < choice.share <= 1:
            raise ValueError(f"choices name a share of {choice.share}")
    return choices


def combine(
    network: Forecaster,
    references: Mapping[str, Forecaster],
    choices: Choices,
    channels: Sequence[str],
    horizon: int,
) -> Combination:
    """The network with the references that the choices name.

    Args:
        network: the trained model.
        references: by name, with all that the choices name.
        choices: at least one.
        channels: of the field.
        horizon: number of trained leads.
    """
    names = list(dict.fromkeys(choice.reference for choice in choices))
    members = {NETWORK: network} | {name: references[name] for name in names}
    return Combination(members, _shares(list(members), choices, channels, horizon)).eval()


def untrained_combination(
    network: Forecaster,
    choices: Choices,
    config: Config,
    time_spec: TimeSpec,
    channels: Sequence[str],
    nodes: Points,
) -> Combination:
    """As `combine`, with references that are not fitted, to load their weights.

    Args:
        network: the model, untrained.
        choices: at least one.
        config: of the run.
        time_spec: of the run.
        channels: of the field.
        nodes: the training points.
    """
    references = {
        name: build_model(
            config.model_copy(update={"model": name}), time_spec, len(channels), nodes
        )
        for name in dict.fromkeys(choice.reference for choice in choices)
    }
    return combine(network, references, choices, channels, time_spec.horizon)


def _shares(
    members: Sequence[str], choices: Choices, channels: Sequence[str], horizon: int
) -> Float[Tensor, "member lead channel"]:
    """The share of each member in the forecast."""
    shares = torch.zeros(len(members), horizon, len(channels))
    shares[0] = 1.0
    for choice in choices:
        leads = slice(choice.first_lead - 1, choice.last_lead)
        c, member = channels.index(choice.channel), members.index(choice.reference)
        shares[:, leads, c] = 0.0
        shares[0, leads, c] = 1.0 - choice.share
        shares[member, leads, c] = choice.share
    return shares
