"""Stream: frames of observations come in one by one; a forecast can be made at any time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from stonet.calibration.apply import Corrector
from stonet.calibration.conformal import Calibration, interval_levels
from stonet.calibration.past_forecasts import PastForecasts, frames_needed
from stonet.data.dates import Time, Times, parse_time
from stonet.data.field import Field, time_label
from stonet.data.geometry import Points
from stonet.data.quantile_field import QuantileField
from stonet.errors import DataError
from stonet.inference.calibrated import required, with_calibration
from stonet.inference.forecast import (
    as_field,
    check_geometry,
    check_observed,
    check_step,
    latest_batch,
    latest_frames,
    requested_times,
)
from stonet.inference.inputs import warn_of_inputs
from stonet.inference.session import Session, select_frames
from stonet.models.forecaster import Encoding, FrameEncoding, narrow
from stonet.training.trained_model import TrainedModel


@dataclass(frozen=True)
class _EncodedFrame:
    """A field of one time, and its encoding if the model encodes frames independently."""

    field: Field
    latent: Float[Tensor, "1 node latent"] | None


class Stream:
    """The latest observations of some sensors, ready for a forecast.

    The sensors' graph is built once, and the links to the last queries are cached. A new frame
    costs the encoding of one frame; a forecast costs the decoding. Forecasts equal those of
    `stonet.inference.forecast.forecast` of a field with the same frames.

    Args:
        trained: a trained model.
        points: positions of the sensors, in the order of the values (None: the training points).
        calibration: of the model: forecasts are corrected by the errors that the frames show, and
            have quantiles (None: neither). More frames are kept then.

    Raises:
        DataError: if the points are of another geometry than the training points.

    Example:
        >>> stream = Stream(TrainedModel.load("runs/uk"))
        >>> stream.observe("2026-11-16T04:00", values)
        >>> stream.forecast(times=["+90min"])
    """

    def __init__(
        self,
        trained: TrainedModel,
        points: Points | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        self.trained, self.points = trained, trained.nodes if points is None else points
        if self.points.kind != trained.nodes.kind:
            raise DataError(
                f"The points lie on a {self.points.kind}; this model was trained on a "
                f"{trained.nodes.kind}. Give coordinates of the same kind."
            )
        self._session = Session(trained, self.points)
        self.calibration = calibration
        kept = trained.time_spec.past if calibration is None else frames_needed(trained.time_spec)
        self._frames: deque[_EncodedFrame] = deque(maxlen=kept)
        self._past: PastForecasts | None = None  # whose errors are reused

    @property
    def field(self) -> Field:
        """The frames that the next forecast is made from."""
        if not self._frames:
            raise DataError("Nothing was observed yet; call observe(time, values) first.")
        fields = [frame.field for frame in self._frames]
        return Field.trusted(
            **vars(fields[0])
            | {
                name: np.concatenate([vars(field)[name] for field in fields])
                for name in ("values", "mask", "times")
            }
        )

    def observe(self, time: Time, values: Any) -> None:
        """Add a frame.

        Args:
            time: a date or nanoseconds (without a calendar: since zero), after the last frame.
            values: (node, channel), or (node,) of a single channel, in the data's units; NaN
                where missing.

        Raises:
            DataError: if shape or order of times do not fit, or a value is infinite.
            UsageError: if the time cannot be read.
        """
        trained, calendar = self.trained, self.trained.time_spec.calendar
        nanoseconds = parse_time(time, calendar)
        array = _as_float32(values)
        if array.ndim == 1 and len(trained.channels) == 1:
            array = array[:, None]
        shape = (len(self.points), len(trained.channels))
        if array.shape != shape:
            raise DataError(
                f"The frame has shape {array.shape}; expected {shape}: a value for each of the "
                f"{shape[0]} points and for each of {trained.channels}."
            )
        if self._frames and nanoseconds <= self._frames[-1].field.times[0]:
            last = time_label(int(self._frames[-1].field.times[0]), calendar)
            raise DataError(
                f"{time_label(nanoseconds, calendar)} is not after {last}, the time of the last "
                "frame. Give frames in the order of their times, each once."
            )
        field = Field(
            array[None],
            np.array([nanoseconds], dtype=np.int64),
            self.points,
            trained.channels,
            None,
            trained.units,
            calendar,
        )
        self._frames.append(_EncodedFrame(field, self._encode(field)))
        if len(self._frames) > trained.time_spec.past:  # this encoding is not needed any more
            oldest = -1 - trained.time_spec.past
            self._frames[oldest] = _EncodedFrame(self._frames[oldest].field, None)

    def forecast(
        self, at: Points | None = None, times: Times | None = None, feedback: bool = True
    ) -> Field:
        """Forecast what follows the last frame; see `stonet.inference.forecast.forecast`.

        Args:
            at: the query points (None: the sensors).
            times: leads, dates or nanoseconds (None: the trained leads).
            feedback: whether it is corrected by recent errors, if there is a calibration.
        """
        result = self._forecast(at, times)
        if self.calibration is None or not feedback:
            return result
        return self._calibrated(result, self.calibration, (), True).field

    def quantiles(
        self,
        quantiles: Sequence[float],
        at: Points | None = None,
        times: Times | None = None,
        feedback: bool = True,
    ) -> QuantileField:
        """A forecast with quantiles, such as 0.05, 0.5, 0.95; other arguments as of `forecast`.

        Args:
            quantiles: increasing numbers.
            at: points of the forecast; None: the sensors.
            times: of the forecast; None: the trained leads.
            feedback: whether recent errors correct the forecast.

        Raises:
            UsageError: if there is no calibration, or quantiles are not valid.
        """
        interval_levels(quantiles)
        calibration = required(self.calibration)
        return self._calibrated(self._forecast(at, times), calibration, quantiles, feedback)

    def _calibrated(
        self, result: Field, calibration: Calibration, quantiles: Sequence[float], feedback: bool
    ) -> QuantileField:
        """The forecast corrected, with quantiles; errors of the last call are reused."""
        past = PastForecasts(self.trained.model, self.trained, self.field)
        if self._past is not None:
            past.reuse(self._past)
        self._past = past
        return with_calibration(Corrector(calibration, past, feedback), result, quantiles)

    def _forecast(self, at: Points | None, times: Times | None) -> Field:
        """The forecast without correction."""
        trained, session, field = self.trained, self._session, self.field
        check_step(trained, field)
        warn_of_inputs(trained, latest_frames(trained, field, False))
        check_observed(trained, field)
        queries = self.points if at is None else at
        check_geometry(self.points, queries)
        requested = requested_times(trained, int(field.times[-1]), times, field.calendar)
        batch, window = latest_batch(trained, field, requested), latest_frames(trained, field)
        if trained.model.frame_wise:
            latents = [frame.latent for frame in self._frames][-len(window.times) :]
            encoded = torch.cat([latent for latent in latents if latent is not None])
            lacking = trained.time_spec.past - len(encoded)  # zeros: masked as missing frames
            padding = encoded.new_zeros(lacking, *encoded.shape[1:])
            encoding: Encoding = FrameEncoding(torch.cat([padding, encoded]))
        else:
            encoding = session.encode(batch)
        chunks = list(session.forecast_chunks(encoding, batch, queries, session.chunk_size()))
        return as_field(trained, window, np.concatenate(chunks, axis=2)[0], requested, queries)

    def _encode(self, field: Field) -> Float[Tensor, "1 node latent"] | None:
        """The encoding of a frame by itself, if the model encodes frames independently."""
        if not self.trained.model.frame_wise:
            return None
        next_time = field.times + self.trained.time_spec.step  # a batch needs a target time
        batch = latest_batch(self.trained, field, next_time)
        newest = select_frames(batch, len(batch.frames) - 1, len(batch.frames))
        return narrow(self._session.encode(newest), FrameEncoding).latent


def _as_float32(values: Any) -> Float32[np.ndarray, "..."]:
    """Values as float32; numbers beyond its range become infinite, which Field refuses."""
    try:
        with np.errstate(over="ignore"):
            return np.asarray(values, dtype=np.float64).astype(np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"The frame is not an array of numbers ({error}).") from None
