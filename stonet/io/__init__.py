"""Files to Field, and Field to files.

Input: CSV, Parquet, NetCDF, Zarr, GRIB, HDF5, pandas and xarray objects. Output: a `Field`, or a
file. Start reading at `read.py`. The packages `tables`, `arrays` and `grib` hold one family of
formats each and turn it into `LazySource`s, which `merge.py` joins into one Field.
"""
