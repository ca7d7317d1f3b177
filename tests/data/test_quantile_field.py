"""Forecasts with quantiles are written and read back without loss."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from helpers.small import small_field

from stonet.data.quantile_field import QuantileField
from stonet.errors import UsageError


@pytest.fixture()
def forecast() -> QuantileField:
    field = small_field(frames=4, points=3)
    spread = np.array([-1.0, 0.0, 1.0], np.float32)[:, None, None, None]
    return QuantileField(field, (0.05, 0.5, 0.95), field.values[None] + spread)


@pytest.mark.parametrize("suffix", [".nc", ".zarr", ".csv", ".csv.gz"])
def test_quantiles_survive_writing_and_reading(
    forecast: QuantileField, suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"forecast{suffix}"
    writer = {".nc": forecast.to_netcdf, ".zarr": forecast.to_zarr}.get(suffix, forecast.to_csv)
    writer(path)
    if suffix.startswith(".csv"):
        table = pd.read_csv(path, skiprows=0)
        assert len(table) == 3 * 4 * 3 and sorted(set(table["quantile"])) == [0.05, 0.5, 0.95]
        return
    opened = xr.open_dataset(path) if suffix == ".nc" else xr.open_zarr(path, consolidated=True)
    assert opened["quantile"].values.tolist() == [0.05, 0.5, 0.95]
    np.testing.assert_allclose(opened["t2m"].values, forecast.values[..., 0], rtol=1e-6)
    opened.close()


def test_a_suffix_of_another_format_is_refused(forecast: QuantileField, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a name in"):
        forecast.to_netcdf(tmp_path / "forecast.csv")
