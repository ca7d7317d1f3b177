"""Arrays with named dims: NetCDF, Zarr and HDF5 files, and xarray's own objects."""
