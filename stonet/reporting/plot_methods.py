"""PlotMethods: the plots of an estimator, `model.plot_map(data)` and its siblings.

Each makes one panel of `stonet.reporting.model_plots` on matplotlib axes. Nothing is shown or kept:
`model.plot_map(data).figure.savefig("map.png")`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stonet.calibration.conformal import Calibration
from stonet.data.dates import Time
from stonet.data.field import Dataset
from stonet.errors import UsageError, unknown_name
from stonet.evaluation.task import scored_task
from stonet.inference.calibrated import required
from stonet.inference.places import find_places
from stonet.io.read import as_dataset
from stonet.training.trained_model import TrainedModel, reading_for

if TYPE_CHECKING:  # matplotlib is imported when something is drawn
    from matplotlib.axes import Axes

    from stonet.reporting.issued import Issued
    from stonet.reporting.panels import Panel


class PlotMethods(ABC):
    """Plots of a trained model with its calibration."""

    @property
    @abstractmethod
    def trained(self) -> TrainedModel:
        """The trained model."""

    @property
    @abstractmethod
    def calibration(self) -> Calibration | None:
        """The calibration of the trained model; None: it has none."""

    def plot_map(
        self,
        data: Any,
        lead: Time | None = None,
        channel: str | None = None,
        issue: Time | None = None,
        grid: float | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw the forecast field at a grid, with the stations coloured by their values.

        Stations show what was observed at that time, or before it is known their own forecast.
        Cells far from any observation are grey.

        Args:
            data: observations, as for `predict`.
            lead: time of the map: a lead such as "+6h", or a date (None: the end of the horizon).
            channel: name (None: the first).
            issue: last time with observations that the model is given (None: that of the data).
            grid: step in degrees, or in the unit of the plane (None: fine enough).
            ax: axes to draw on (None: those of a new figure).

        Example:
            >>> model.plot_map(data, lead="+6h").figure.savefig("map.png")
        """
        from stonet.reporting.model_plots import map_panels

        leads = None if lead is None else [lead]
        return _drawn(map_panels(self._issued(data, issue), leads, channel, grid), ax)

    def plot_series(
        self,
        data: Any,
        at: Any = None,
        channel: str | None = None,
        issue: Time | None = None,
        times: Sequence[Time] | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw past, forecast and intervals at one place, and what was observed later.

        Args:
            data: observations, as for `predict`.
            at: the place, as for `predict` (None: the first station with recent values).
            channel: name (None: the first).
            issue: last time with observations that the model is given (None: that of the data).
            times: of the forecast (None: the trained leads).
            ax: axes to draw on (None: those of a new figure).

        Raises:
            UsageError: several places are given.

        Example:
            >>> model.plot_series(data, at="Bern", issue="2024-06-01T12")
        """
        from stonet.reporting.model_plots import series_panels

        model = self._issued(data, issue)
        places, _ = find_places(at, model.whole.points, self.trained.nodes)
        if places is not None and len(places) > 1:
            raise UsageError(
                f"{len(places)} places were given, and the axes are those of one. Call once for "
                "each place, with ax=."
            )
        return _drawn(series_panels(model, places, channel, times)[:1], ax)

    def plot_errors(
        self,
        data: Any,
        part: str = "test",
        metric: str = "mae",
        channel: str | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw the error by lead of the model and of the reference forecasts.

        Args:
            data: as for `fit`.
            part: "test", "validation", "train" or "all".
            metric: "mae", "rmse", "mape" or "bias".
            channel: name (None: all channels together).
            ax: axes to draw on (None: those of a new figure).
        """
        from stonet.reporting.model_plots import error_panels

        task = scored_task(self.trained, self._dataset(data), part)
        return _drawn(error_panels(self.trained, self.calibration, task, part, metric, channel), ax)

    def plot_reliability(
        self, data: Any, part: str = "test", by: str = "lead", ax: Axes | None = None
    ) -> Axes:
        """Draw how often the intervals hold the observed value.

        Args:
            data: as for `fit`.
            part: "test", "validation" or "train".
            by: "lead", "distance" (to the nearest station), "month", or "pit".
            ax: axes to draw on (None: those of a new figure).

        Raises:
            UsageError: the model has no calibration.
        """
        from stonet.plotting.reliability import PANELS
        from stonet.reporting.model_plots import reliability_panels

        if by not in PANELS:
            raise unknown_name("panel", by, PANELS)
        task = scored_task(self.trained, self._dataset(data), part)
        panels = reliability_panels(self.trained, required(self.calibration), task, part)
        return _drawn([panels[list(PANELS).index(by)]], ax)

    def _dataset(self, data: Any) -> Dataset:
        """The data as a data set, read as for training."""
        return as_dataset(data, reading_for(self.trained, data).read)

    def _issued(self, data: Any, issue: Time | None) -> Issued:
        """The model at an issue time."""
        from stonet.reporting.issued import Issued

        return Issued.of(self.trained, self.calibration, self._dataset(data), issue)


def _drawn(panels: Sequence[Panel], ax: Axes | None) -> Axes:
    """The axes with the only panel."""
    from stonet.plotting.fields import new_axes

    (panel,) = panels
    axes = new_axes(panel.size) if ax is None else ax
    panel.draw(axes)
    return axes
