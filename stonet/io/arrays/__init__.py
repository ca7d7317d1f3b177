"""Gridded and station files with named dimensions: NetCDF, Zarr, HDF5, xarray objects.

Input: a path or an xarray object. Output: `LazySource`s. Start reading at `backends.py`, then
`dataset.py`.
"""
