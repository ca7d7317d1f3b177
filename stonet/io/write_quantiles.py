"""Quantile forecasts as files: variables, or tables, with a dimension `quantile`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from stonet.data.quantile_field import QuantileField
from stonet.io.write import check_writable, table
from stonet.system.atomic import replacing


def write_quantiles(forecast: QuantileField, path: str | Path) -> None:
    """Write quantiles in the format of the suffix: .nc, .zarr, .csv, .csv.gz, .parquet.

    Args:
        forecast: a forecast with quantiles.
        path: a new file, or one of the same format to be replaced.

    Example:
        >>> write_quantiles(forecast, "forecast.nc")  # doctest: +SKIP
    """
    check_writable(path)
    suffix = Path(path).suffix.lower()
    with replacing(Path(path)) as stage:
        if suffix == ".nc":
            _with_compression(forecast, stage)
        elif suffix == ".zarr":
            forecast.to_xarray().to_zarr(stage, zarr_format=2, consolidated=True)
        elif suffix == ".parquet":
            _table(forecast, text=False).to_parquet(stage, index=False)
        else:
            _table(forecast, text=True).to_csv(stage, index=False, lineterminator="\n")


def _with_compression(forecast: QuantileField, path: Path) -> None:
    dataset = forecast.to_xarray()
    encoding = {
        name: {"zlib": True, "complevel": 4, "shuffle": True}
        for name in dataset.data_vars
        if "quantile" in dataset[name].dims
    }
    dataset.to_netcdf(path, engine="h5netcdf", encoding=encoding)


def _table(forecast: QuantileField, text: bool) -> pd.DataFrame:
    """The rows of each quantile, one quantile after another."""
    parts = []
    for quantile in forecast.quantiles:
        part = table(forecast.at(quantile), text=text)
        part.insert(2, "quantile", quantile)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)
