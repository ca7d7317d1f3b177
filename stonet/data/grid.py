"""Points of a regular grid: recognised by their coordinates, and written with lat and lon as dims.

A grid may lack cells, such as the sea of a land data set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64, Int64

from stonet.data.geometry import Points

if TYPE_CHECKING:
    import xarray as xr

MAX_CELLS = 4  # cells of a grid with gaps, for each of its points
MIN_POINTS = 16  # of a grid with gaps; fewer stations may look like one
MISSING_LEVEL = -1  # of integers where a grid has no point


@dataclass(frozen=True)
class Grid:
    """A regular grid and the cells that its points are in.

    Args:
        dims: of the rows and of the columns: lat and lon, or y and x.
        rows: coordinates of the rows, in their order.
        columns: coordinates of the columns.
        cells: of each point: row times number of columns, plus column.
    """

    dims: tuple[str, str]
    rows: Float64[np.ndarray, " row"]
    columns: Float64[np.ndarray, " column"]
    cells: Int64[np.ndarray, " point"]

    @staticmethod
    def of(points: Points) -> Grid | None:
        """The grid that unnamed points form; None if they form none.

        Args:
            points: with numbers for names; named points are stations.

        Example:
            >>> grid = Grid.of(Points(np.array([[0, 0], [0, 1], [2, 0], [2, 1.0]]), "sphere"))
            >>> grid.dims, grid.rows
            (('lat', 'lon'), array([0., 2.]))
        """
        if len(points) < 4 or not all(name.isdigit() for name in points.names):
            return None
        axes = points.coordinates.T if points.kind == "sphere" else points.coordinates.T[::-1]
        (rows, row), (columns, column) = (np.unique(a, return_inverse=True) for a in axes)
        count = len(rows) * len(columns)
        few = count > len(points) and len(points) < MIN_POINTS
        if min(len(rows), len(columns)) < 2 or few or count > MAX_CELLS * len(points):
            return None
        if axes[0][0] > axes[0][-1]:  # from north to south
            rows, row = rows[::-1], len(rows) - 1 - row
        cells = row * len(columns) + column
        if len(np.unique(cells)) < len(cells):
            return None
        dims = ("lat", "lon") if points.kind == "sphere" else ("y", "x")
        return Grid(dims, rows, columns, cells.astype(np.int64))

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return len(self.rows), len(self.columns)

    def scatter(self, values: np.ndarray, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Values of points (the last axis) in the cells of the rows start <= row < stop.

        Args:
            values: (..., point), of the points in these rows.
            start: first row.
            stop: the row after the last one; None: all.

        Returns:
            (..., row, column), missing where there is no point.
        """
        rows, columns = (self.shape[0] if stop is None else stop) - start, self.shape[1]
        low, high = start * columns, (start + rows) * columns
        cells = self.cells[(self.cells >= low) & (self.cells < high)] - low
        fill = MISSING_LEVEL if values.dtype.kind == "i" else np.nan
        full = np.full((*values.shape[:-1], rows * columns), fill, values.dtype)
        full[..., cells] = values
        return full.reshape(*values.shape[:-1], rows, columns)

    def scatter_fields(
        self, values: np.ndarray, start: int = 0, stop: int | None = None
    ) -> np.ndarray:
        """As `scatter`, of values (..., point, channel): (..., row, column, channel).

        Args:
            values: of consecutive points; channels last.
            start: position of the first of these points.
            stop: position after the last of them; None: the last point of the grid.
        """
        return np.moveaxis(self.scatter(np.moveaxis(values, -1, -2), start, stop), -3, -1)

    def with_dims(self, dataset: xr.Dataset) -> xr.Dataset:
        """A data set over stations with the dims of the grid in place of `station`.

        Args:
            dataset: variables with the dim `station`, or without it.
        """
        import xarray as xr

        def change(variable: xr.Variable) -> Any:
            if "station" not in variable.dims:
                return variable
            dims = [dim for dim in variable.dims if dim != "station"]
            values = self.scatter(variable.transpose(*dims, "station").values)
            encoding = dict(variable.encoding)
            if values.dtype.kind == "i" and (values == MISSING_LEVEL).any():
                encoding["_FillValue"] = values.dtype.type(MISSING_LEVEL)
            return xr.Variable((*dims, *self.dims), values, variable.attrs, encoding)

        kept = [name for name in dataset.variables if name not in (*self.dims, "station")]
        changed = {name: change(dataset.variables[name]) for name in kept}
        coords = {name: changed.pop(name) for name in kept if name in dataset.coords}
        letters, axes = ("Y", "X"), (self.rows, self.columns)
        for dim, letter, values in zip(self.dims, letters, axes, strict=True):
            attrs = {**dataset.variables[dim].attrs, "axis": letter}
            coords[dim] = xr.Variable((dim,), values, attrs, {"_FillValue": None})
        attrs = {key: text for key, text in dataset.attrs.items() if key != "featureType"}
        return xr.Dataset(changed, coords, attrs)
