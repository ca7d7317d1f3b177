"""QuantileField: a forecast with quantiles of its distribution, in the data's units."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float32

from stonet.data.cf import outline
from stonet.data.dates import Time
from stonet.data.field import Field
from stonet.data.grid import Grid
from stonet.data.writing import WriteMethods
from stonet.errors import DataError, UsageError

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.axes import Axes

QUANTILE_ATTRS = {"long_name": "quantile of the forecast distribution", "units": "1"}


@dataclass(frozen=True, eq=False)
class QuantileField(WriteMethods):
    """A forecast and its quantiles at the same points and times.

    Quantiles are NaN where no interval can be given: too few points tell how large errors are.

    Args:
        field: the forecast; it is the quantile 0.5.
        quantiles: increasing numbers between 0 and 1.
        values: of the quantiles, in the units of the field.

    Raises:
        DataError: if the shapes do not fit.

    Example:
        >>> lower, upper = model.predict(data, quantiles=[0.05, 0.95]).interval(90)
    """

    field: Field
    quantiles: tuple[float, ...]
    values: Float32[np.ndarray, "quantile time node channel"]

    def __post_init__(self) -> None:
        expected = (len(self.quantiles), *self.field.values.shape)
        if self.values.shape != expected:
            raise DataError(f"Quantiles have shape {self.values.shape}; expected {expected}.")

    def at(self, quantile: float) -> Field:
        """One quantile as a Field.

        Args:
            quantile: between 0 and 1.

        Raises:
            UsageError: if it was not forecast.
        """
        found = np.flatnonzero(np.abs(np.array(self.quantiles) - quantile) < 1e-9)
        if not len(found):
            raise UsageError(f"Quantile {quantile:g} was not forecast; there are {self.quantiles}.")
        return replace(self.field, values=self.values[found[0]], mask=None)

    def interval(self, percent: float | int) -> tuple[Field, Field]:
        """The lower and the upper end of a central interval, such as 90 for 0.05 and 0.95.

        Args:
            percent: probability that the interval contains the value.

        Raises:
            UsageError: if its ends were not forecast.
        """
        lower, upper = interval_quantiles(percent)
        return self.at(lower), self.at(upper)

    def plot(
        self,
        ax: Axes | None = None,
        channel: str | None = None,
        time: Time | None = None,
        stations: str | None = None,
    ) -> Axes:
        """Draw the series of one station with its 50 % and 90 % intervals, or a map.

        The map is that of the forecast. Intervals need the quantiles at their ends: .05, .25, .75
        and .95.

        Args:
            ax: matplotlib axes to draw on (None: those of a new figure).
            channel: name (None: the first).
            time: of the map: a date, or a lead such as "+6h" (None: the last).
            stations: name of one station, whose series is drawn (None: a map).

        Returns:
            The axes.

        Example:
            >>> model.predict(data, quantiles=[0.05, 0.5, 0.95]).plot(stations="Bern")
        """
        from stonet.plotting.fields import plot_quantiles

        return plot_quantiles(self, ax, channel, time, stations)

    def to_xarray(self) -> xr.Dataset:
        """A CF data set with the dims (quantile, time, station); variables keep name and units.

        On a grid, lat and lon (or y and x) take the place of station.
        """
        import xarray as xr

        dataset, channels = outline(self.field)
        missing = {"_FillValue": np.float32("nan")}
        dims = ("quantile", "time", "station")
        variables = {
            name: (dims, self.values[..., i], attrs, missing)
            for i, (name, attrs) in enumerate(channels.items())
        }
        stations = xr.Dataset(variables | dict(dataset.data_vars), dataset.coords, dataset.attrs)
        grid = Grid.of(self.field.points)
        result = stations if grid is None else grid.with_dims(stations)
        return with_quantiles(result, self.quantiles)

    def _write(self, path: str | Path) -> None:
        from stonet.io.write_quantiles import write_quantiles  # upwards, as `plot`

        write_quantiles(self, path)

    def to_dataframe(self) -> pd.DataFrame:
        """A long table as `Field.to_dataframe`, with the column quantile behind the time."""
        import pandas as pd

        parts = []
        for quantile in self.quantiles:
            part = self.at(quantile).to_dataframe()
            part.insert(1, "quantile", quantile)
            parts.append(part)
        return pd.concat(parts, ignore_index=True)


def interval_quantiles(percent: float | int) -> tuple[float, float]:
    """The quantiles at the ends of a central interval.

    Args:
        percent: probability that the interval contains the value.

    Example:
        >>> interval_quantiles(90)
        (0.05, 0.95)
    """
    tail = round((100 - percent) / 200, 9)
    return tail, round(1 - tail, 9)


def with_quantiles(dataset: xr.Dataset, quantiles: tuple[float, ...]) -> xr.Dataset:
    """The data set with a CF coordinate of quantiles.

    Args:
        dataset: variables of a forecast, with a dim `quantile`.
        quantiles: increasing numbers between 0 and 1.
    """
    coordinate = ("quantile", np.array(quantiles), QUANTILE_ATTRS, {"_FillValue": None})
    result = dataset.assign_coords(quantile=coordinate)
    result.attrs = {name: text for name, text in dataset.attrs.items() if name != "featureType"}
    return result
