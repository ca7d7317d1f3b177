"""CF attributes of the data reach the forecasts, and an unknown unit stays unknown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import xarray as xr
from helpers.contracts import perturbed_model, small_field

from stonet.inference.forecast import forecast, forecast_to_file
from stonet.inference.hindcast import hindcast
from stonet.io.read import read

ABOUT = {"standard_name": "air_temperature", "long_name": "2 m temperature", "valid_min": 1.0}


def test_attributes_survive_reading_and_writing(tmp_path) -> None:
    field = small_field("sphere", channels=2)
    attrs = {"licence": "CC-BY-4.0", "title": "observations", "history": "made by hand"}
    field = replace(field, units=("K", ""), attrs=attrs, channel_attrs={"u0": ABOUT})
    field.to_netcdf(str(tmp_path / "data.nc"))
    again = read(tmp_path / "data.nc")
    assert again.units == ("K", "")
    assert dict(again.channel_attrs["u0"]) == ABOUT
    trained = perturbed_model()
    made = forecast(trained, again)
    assert made.attrs["licence"] == "CC-BY-4.0" and "history" not in made.attrs
    forecast_to_file(trained, again, tmp_path / "forecast.nc")
    hindcast(trained, again.between(0, 30), tmp_path / "hindcast.zarr")
    with (
        xr.open_dataset(tmp_path / "forecast.nc") as one,
        xr.open_zarr(tmp_path / "hindcast.zarr", decode_timedelta=True) as many,
    ):
        for file in (one, many):
            assert {key: file["u0"].attrs[key] for key in ABOUT} == ABOUT
            assert file["u0"].attrs["units"] == "K" and file.attrs["licence"] == "CC-BY-4.0"
        valid = many["forecast_reference_time"] + many["forecast_period"]
        np.testing.assert_array_equal(many["time"], valid)


def test_an_unknown_unit_is_not_written_as_a_number(tmp_path) -> None:
    field = replace(small_field("sphere", channels=2), units=("", "1"))
    field.to_netcdf(str(tmp_path / "data.nc"))
    with xr.open_dataset(tmp_path / "data.nc") as file:
        assert "units" not in file["u0"].attrs and file["u1"].attrs["units"] == "1"
