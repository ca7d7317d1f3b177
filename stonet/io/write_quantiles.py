"""Quantile forecasts as files: variables, or tables, with a dimension `quantile`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from stonet.data.cf import outline
from stonet.data.grid import Grid
from stonet.data.quantile_field import QuantileField, with_quantiles
from stonet.io.write import check_writable, netcdf_by_blocks, table
from stonet.system.atomic import disk_errors_explained, replacing


def write_quantiles(forecast: QuantileField, path: str | Path) -> None:
    """Write quantiles in the format of the suffix: .nc, .zarr, .csv, .csv.gz, .parquet.

    Args:
        forecast: a forecast with quantiles.
        path: a new file, or one of the same format to be replaced.

    Example:
        >>> write_quantiles(forecast, "forecast.nc")  # doctest: +SKIP
    """
    path = Path(path)
    check_writable(path)
    with disk_errors_explained(path):
        if path.suffix.lower() == ".nc":
            _to_netcdf(forecast, path)
        else:
            _to_others(forecast, path)


def _to_others(forecast: QuantileField, path: Path) -> None:
    suffix = path.suffix.lower()
    with replacing(path) as stage:
        if suffix == ".zarr":
            forecast.to_xarray().to_zarr(stage, zarr_format=2, consolidated=True)
        elif suffix == ".parquet":
            _table(forecast, text=False).to_parquet(stage, index=False)
        else:
            _table(forecast, text=True).to_csv(stage, index=False, lineterminator="\n")


def _to_netcdf(forecast: QuantileField, path: Path) -> None:
    """One quantile after another."""
    dataset, variables = outline(forecast.field)
    grid = Grid.of(forecast.field.points)
    dims: tuple[str, ...] = ("quantile", "time", "station")
    if grid is not None:
        dataset, dims = grid.with_dims(dataset), ("quantile", "time", *grid.dims)
    dataset = with_quantiles(dataset, forecast.quantiles)
    first = (0,) * (len(dims) - 1)
    with netcdf_by_blocks(path, dataset, variables, dims) as write_block:
        for number in range(len(forecast.quantiles)):
            values = forecast.values[number : number + 1]
            block = values if grid is None else grid.scatter_fields(values)
            write_block((number, *first), block)


def _table(forecast: QuantileField, text: bool) -> pd.DataFrame:
    """The rows of each quantile, one quantile after another."""
    parts = []
    for quantile in forecast.quantiles:
        part = table(forecast.at(quantile), text=text)
        part.insert(2, "quantile", quantile)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)
