"""Stream: observations come in one frame at a time, forecasts go out at any time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from stonet.data.dates import Time, Times, parse_time
from stonet.data.field import Field, time_label
from stonet.data.geometry import Points
from stonet.errors import DataError
from stonet.inference.forecast import (
    as_field,
    check_kind,
    check_observed,
    check_step,
    latest_frames,
    latest_window,
    requested_times,
)
from stonet.inference.session import ChunkSize, Session, frames_of
from stonet.training.trained_model import TrainedModel


@dataclass(frozen=True)
class Frame:
    """What was observed at one time, and its encoding if the model encodes frames one by one."""

    field: Field
    latent: Float[Tensor, "1 node latent"] | None


class Stream:
    """The newest observations of some sensors, ready for a forecast.

    Whatever does not change is made once: the graph of the sensors, the links to the queries that
    were asked last. A new frame costs the encoding of one frame; a forecast costs the decoding.
    The answers are those of `stonet.inference.forecast.forecast` on a field of the same frames.

    Example:
        >>> stream = Stream(TrainedModel.load("runs/uk"))
        >>> stream.observe("2026-11-16T04:00", values)
        >>> stream.forecast(times=["+90min"])

    Args:
        run: a trained model.
        points: of the sensors, in the order of the values to come (None: the training points).
    """

    def __init__(self, run: TrainedModel, points: Points | None = None) -> None:
        self.run, self.points = run, run.nodes if points is None else points
        if self.points.kind != run.nodes.kind:
            raise DataError(
                f"The points lie on a {self.points.kind}; this model was trained on a "
                f"{run.nodes.kind}. Give coordinates of the same kind."
            )
        self._session = Session(run, self.points)
        self._frames: deque[Frame] = deque(maxlen=run.time_spec.past)

    @property
    def field(self) -> Field:
        """The frames that the next forecast can see."""
        if not self._frames:
            raise DataError("Nothing was observed yet; call observe(time, values) first.")
        parts = [frame.field for frame in self._frames]
        return Field.trusted(
            **vars(parts[0])
            | {
                name: np.concatenate([vars(part)[name] for part in parts])
                for name in ("values", "mask", "times")
            }
        )

    def observe(self, time: Time, values: Any) -> None:
        """Take in a frame.

        Args:
            time: a date, or nanoseconds (of a field without a calendar: since its zero); later
                than that of the frame before.
            values: (node, channel), or (node,) of a single channel, in the data's own units; NaN
                where missing.
        """
        run = self.run
        moment = parse_time(time, run.time_spec.calendar)
        array = _numbers(values)
        if array.ndim == 1 and len(run.channels) == 1:
            array = array[:, None]
        shape = (len(self.points), len(run.channels))
        if array.shape != shape:
            raise DataError(
                f"The frame has shape {array.shape}; expected {shape}: a value for each of the "
                f"{shape[0]} points and for each of {run.channels}."
            )
        if self._frames and moment <= self._frames[-1].field.times[0]:
            last = time_label(int(self._frames[-1].field.times[0]), run.time_spec.calendar)
            raise DataError(
                f"{time_label(moment, run.time_spec.calendar)} is not after {last}, the time of the "
                "frame before. Frames must come in the order of their times, each once."
            )
        moments = np.array([moment], dtype=np.int64)
        time_spec = run.time_spec
        field = Field(
            array[None], moments, self.points, run.channels, None, run.units, time_spec.calendar
        )
        self._frames.append(Frame(field, self._encoded(field)))

    def forecast(self, at: Points | None = None, times: Times | None = None) -> Field:
        """What follows the newest frame; see `stonet.inference.forecast.forecast`."""
        run, field = self.run, self.field
        check_step(run, field)
        check_observed(run, field)
        queries = self.points if at is None else at
        check_kind(self.points, queries)
        ask = requested_times(run, int(field.times[-1]), times, field.calendar)
        batch, window = latest_window(run, field, ask), latest_frames(run, field)
        if run.model.frame_wise:
            latent = [frame.latent for frame in self._frames][-len(window.times) :]
            encoded = torch.cat([part for part in latent if part is not None])
            lacking = run.time_spec.past - len(encoded)  # what is encoded of no value says nothing
            encoded = torch.cat([encoded.new_zeros(lacking, *encoded.shape[1:]), encoded])
        else:
            encoded = self._session.encode(batch)
        parts = list(self._session.answer(encoded, batch, queries, ChunkSize()))
        return as_field(run, window, np.concatenate(parts, axis=2)[0], ask, queries)

    def _encoded(self, field: Field) -> Float[Tensor, "1 node latent"] | None:
        if not self.run.model.frame_wise:
            return None
        soon = field.times + self.run.time_spec.step
        newest = latest_window(self.run, field, soon)
        alone = frames_of(newest, len(newest.frames) - 1, len(newest.frames))
        latent: Tensor = self._session.encode(alone)
        return latent


def _numbers(values: Any) -> Float32[np.ndarray, "..."]:
    try:
        with np.errstate(over="ignore"):  # too large: infinite, and refused as such
            return np.asarray(values, dtype=np.float64).astype(np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"The frame is no array of numbers ({error}).") from None
