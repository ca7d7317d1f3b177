"""A NetCDF file written in blocks equals one that xarray writes at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import h5netcdf
import numpy as np
import pytest
from helpers.forecast_files import HOUR, START, make_forecast, open_file, with_nan

from stonet.data.cf import to_xarray
from stonet.io import write


def raw(path) -> dict:
    """The complete content of a NetCDF file as it is stored, without HDF5's own attributes."""

    def plain(attrs) -> dict:
        return {k: np.asarray(v).tolist() for k, v in attrs.items() if k != "_FillValue"}

    with h5netcdf.File(path, "r") as file:
        variables = {
            name: (v.dimensions, v.dtype.str, plain(v.attrs), np.asarray(v[...]).tolist())
            for name, v in file.variables.items()
        }
        sizes = {name: dimension.size for name, dimension in file.dimensions.items()}
        return {"": (sizes, plain(file.attrs))} | variables


@pytest.mark.parametrize("reference", [True, False])
@pytest.mark.parametrize(("chunk", "block"), [(2**17, 2**22), (8, 1), (8, 40), (1, 1)])
def test_a_file_written_in_blocks_equals_one_that_xarray_writes(
    tmp_path, chunk, block, reference
) -> None:
    field = make_forecast(times=START + HOUR * np.arange(1, 12), reference=reference)
    write.to_netcdf(field, tmp_path / "blocks.nc", chunk, block)
    to_xarray(field).to_netcdf(tmp_path / "once.nc", engine="h5netcdf")
    blocks, once = raw(tmp_path / "blocks.nc"), raw(tmp_path / "once.nc")
    assert blocks.keys() == once.keys()
    for name in once:
        np.testing.assert_equal(blocks[name], once[name])
    assert open_file(tmp_path / "blocks.nc").identical(open_file(tmp_path / "once.nc"))


def test_a_long_field_is_copied_in_blocks_only(tmp_path, monkeypatch) -> None:
    field = make_forecast(times=START + HOUR * np.arange(2000), reference=False)
    sizes: list[int] = []
    by_blocks = write.netcdf_by_blocks

    @contextmanager
    def recorded(*arguments, **options) -> Iterator[write.WriteBlock]:
        with by_blocks(*arguments, **options) as write_block:
            yield lambda start, values: sizes.append(values.size) or write_block(start, values)

    monkeypatch.setattr(write, "netcdf_by_blocks", recorded)
    write.to_netcdf(field, tmp_path / "out.nc", chunk=400, block=1600)
    assert sizes == [1600] * 10
    np.testing.assert_array_equal(open_file(tmp_path / "out.nc").t2m, with_nan(field)[..., 0])
