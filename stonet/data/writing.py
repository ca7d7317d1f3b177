"""WriteMethods: `to_netcdf`, `to_zarr` and `to_csv` of fields and of forecasts with quantiles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from stonet.errors import UsageError


class WriteMethods(ABC):
    """Writing a CF file; an older file is replaced once the new one is complete.

    Example:
        >>> forecast.to_netcdf("forecast.nc")  # doctest: +SKIP
    """

    @abstractmethod
    def _write(self, path: str | Path) -> None:
        """Write in the format of the suffix."""

    def to_netcdf(self, path: str | Path) -> None:
        """Write a CF NetCDF file (.nc).

        Args:
            path: ends in .nc.
        """
        self._write_as(path, ".nc")

    def to_zarr(self, path: str | Path) -> None:
        """Write a CF Zarr store (.zarr).

        Args:
            path: ends in .zarr.
        """
        self._write_as(path, ".zarr")

    def to_csv(self, path: str | Path) -> None:
        """Write a long table (.csv or .csv.gz) with units in its header.

        Args:
            path: ends in .csv or .csv.gz.
        """
        self._write_as(path, ".csv", ".csv.gz")

    def _write_as(self, path: str | Path, *suffixes: str) -> None:
        """Write where the name ends in one of these suffixes."""
        if not str(path).lower().endswith(suffixes):
            raise UsageError(f"Cannot write '{path}'; expected a name in {' or '.join(suffixes)}.")
        self._write(path)
