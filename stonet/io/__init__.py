"""Files to Field, and Field to files.

Comes in: CSV, Parquet, NetCDF, Zarr, GRIB, HDF5, pandas and xarray objects. Goes out: a `Field`, or
a CF file. Start reading at `read.py`; `tables/`, `arrays/` and `grib/` hold one family of formats
each.
"""
