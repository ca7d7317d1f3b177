"""Issue: what all forecasts from one issue time share, computed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

import numpy as np

from stonet.calibration.apply import Corrector
from stonet.calibration.conformal import Calibration, interval_levels
from stonet.calibration.past_forecasts import PastForecasts
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.data.quantile_field import QuantileField
from stonet.inference.calibrated import recent_frames, required, with_calibration
from stonet.inference.forecast import as_field, latest_batch, latest_frames, prepare
from stonet.inference.inputs import check_inputs, without_far_values
from stonet.inference.session import Session
from stonet.inference.support import silent_notes
from stonet.models.forecaster import Graphs
from stonet.training.trained_model import TrainedModel

Watch = Callable[[], None]  # called between the parts of a long computation; raises to end it


class Issue:
    """The forecasts from one issue time: those of `stonet predict` on the data up to it.

    The encoding of the past and the errors of earlier forecasts are computed once.

    Args:
        trained: a trained model.
        calibration: of the model; None: forecasts are not corrected and have no quantiles.
        field: observations up to the issue time.
        session: of the model and the points of the field.

    Raises:
        DataError: if nothing can be forecast from these observations.
    """

    def __init__(
        self,
        trained: TrainedModel,
        calibration: Calibration | None,
        field: Field,
        session: Session,
    ) -> None:
        self.trained, self.calibration, self.session = trained, calibration, session
        self.field = recent_frames(trained, field, calibration)
        _, _, batch = prepare(trained, self.field, None, None)
        unscreened = latest_frames(trained, self.field, screened=False)
        self.window = without_far_values(trained, unscreened)
        self.notes = (*check_inputs(trained, unscreened), *silent_notes(self.window))
        self._encoded = session.encode(batch)
        self._corrector: Corrector | None = None
        self._one_by_one = Lock()  # the corrector keeps what it has computed

    @property
    def time(self) -> int:
        """The issue time in nanoseconds."""
        return int(self.field.times[-1])

    def forecast(
        self,
        queries: Points,
        times: np.ndarray,
        quantiles: Sequence[float] = (),
        watch: Watch = lambda: None,
    ) -> QuantileField:
        """The forecast with its quantiles; without any, the forecast alone.

        Args:
            queries: points of the forecast.
            times: in nanoseconds, checked by `requested_times`.
            quantiles: increasing numbers between 0 and 1.
            watch: called between two chunks of the queries.

        Raises:
            UsageError: if quantiles are not valid, or the run has no calibration.
        """
        if quantiles:
            interval_levels(quantiles)
            required(self.calibration)
        batch = latest_batch(self.trained, self.field, times)
        chunks = []
        sizes = self.session.chunk_size()
        for chunk in self.session.forecast_chunks(self._encoded, batch, queries, sizes):
            chunks.append(chunk[0])
            watch()
        values = np.concatenate(chunks, axis=1)
        made = as_field(self.trained, self.window, values, times, queries)
        with self._one_by_one:
            watch()
            corrector = self._corrected(bool(quantiles))
            if corrector is not None:
                return with_calibration(corrector, made, quantiles)
        return QuantileField(made, (), np.zeros((0, *values.shape), np.float32))

    def _corrected(self, intervals: bool) -> Corrector | None:
        """The corrections and intervals; None if neither is needed."""
        calibration = self.calibration
        if calibration is None or not (intervals or calibration.feedback.active):
            return None
        if self._corrector is None:
            points = self.field.points
            graphs = Graphs(self.session.graph, self.session.query_graph(points))
            past = PastForecasts(self.trained.model, self.trained, self.field, graphs=graphs)
            self._corrector = Corrector(calibration, past)
        return self._corrector
