"""Inputs beside the training data: refused if they are of another quantity or unit, else named.

A value that is far outside of what training saw (`Scaler.far_outside`) counts as missing. If that
holds for most values of a channel, the data are refused.
"""

from __future__ import annotations

import warnings

import numpy as np

from stonet.data.display import listed
from stonet.data.field import Field
from stonet.errors import DataError
from stonet.training.trained_model import TrainedModel

MAX_FAR = 0.5  # share of a channel's values far outside; more of them are another quantity
MAX_OUTSIDE = 0.05  # share of a channel's values outside of the range, above which there is a note
BLOCK = 2**22  # values looked at together


class InputWarning(UserWarning):
    """Inputs are unlike the training data, and the forecast is made without some of them."""


def check_inputs(trained: TrainedModel, field: Field) -> tuple[str, ...]:
    """Notes on inputs that are unlike the training data.

    Args:
        trained: a trained model.
        field: observations that are compatible with the model.

    Returns:
        sentences that name channels and stations.

    Raises:
        DataError: most values of a channel cannot be of the quantity or unit in training.
    """
    far, outside, count = _counts(trained, field)
    notes = []
    for c, channel in enumerate(field.channels):
        total = int(count[:, c].sum())
        number, beyond = int(far[:, c].sum()), int(outside[:, c].sum())
        if number > MAX_FAR * total:
            raise DataError(_refusal(trained, field, c, number / total))
        if number:
            stations = [field.points.names[i] for i in np.flatnonzero(far[:, c])]
            notes.append(
                f"{number} of {total} values of {channel} are far from all training values "
                f"({_range(trained, c)}) and count as missing, at {listed(stations)}. A sensor's "
                "fault?"
            )
        if beyond - number > MAX_OUTSIDE * total:
            notes.append(
                f"{beyond - number} of {total} values of {channel} lie outside of the range of "
                f"forecasts ({_range(trained, c)}), which follows from the "
                f"training data. Declare a wider one with --bounds {channel}=LOW:HIGH, or train on "
                "data that include such values."
            )
    return tuple(notes)


def warn_of_inputs(trained: TrainedModel, field: Field) -> tuple[str, ...]:
    """As `check_inputs`, with a warning for each note.

    Args:
        trained: the model.
        field: observations.
    """
    notes = check_inputs(trained, field)
    for note in notes:
        warnings.warn(note, InputWarning, stacklevel=3)
    return notes


def without_far_values(trained: TrainedModel, field: Field) -> Field:
    """The field with values that are far outside as missing.

    Args:
        trained: its scaler tells what is far outside.
        field: observations.
    """
    far = trained.scaler.far_outside(field.values)
    if not far.any():
        return field
    values = np.where(far, np.float32("nan"), field.values)
    return Field.trusted(**vars(field) | {"values": values, "mask": field.observed & ~far})


def _counts(trained: TrainedModel, field: Field) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers (node, channel) of values far outside, of those outside, and of all; by blocks."""
    counts = np.zeros((3, *field.values.shape[1:]), dtype=np.int64)
    length = max(1, BLOCK // max(1, field.values[0].size))
    for start in range(0, len(field.times), length):
        values = field.values[start : start + length]
        observed = field.observed[start : start + length]
        parts = (trained.scaler.far_outside(values), trained.scaler.outside(values), observed)
        for total, part in zip(counts, parts, strict=True):
            total += (part & observed).sum(0)
    return counts[0], counts[1], counts[2]


def _range(trained: TrainedModel, channel: int) -> str:
    """The range of a channel's forecasts, with its unit."""
    text = trained.scaler.describe(trained.channels, trained.units)[channel]
    return text.removeprefix(f"{trained.channels[channel]} ")


def _refusal(trained: TrainedModel, field: Field, c: int, share: float) -> str:
    """The message for data of another quantity or unit."""
    observed = field.values[..., c][field.observed[..., c]]
    unit = trained.units[c]
    return (
        f"{100 * share:.0f} % of the values of '{field.channels[c]}' (median "
        f"{float(np.median(observed)):.4g}) are far from all values that the model was trained on "
        f"({_range(trained, c)}): another variable, or another unit? Give "
        f"data of the same quantity{f' in {unit}' if unit else ''}: --variables NAME, --rename "
        f"NAME={field.channels[c]}, or convert them."
    )
