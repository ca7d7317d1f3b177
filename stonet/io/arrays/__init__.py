"""Gridded and station files with named dimensions: NetCDF, Zarr, HDF5, xarray objects.

Comes in: a path or a Dataset. Goes out: `LazySource`s. Start reading at `dataset.py`.
"""
