"""Many stations on many processes: spatial tiles, two processes, and the same forecast."""

# %%
# ## A large network
#
# `stations(count=...)` simulates networks of any size. Beyond 20,000 points, or whenever
# `train.tile` is set, training goes tile by tile, each with the halo of points that its forecasts
# depend on, so that memory does not grow with the network.

import os
import subprocess
import sys

import numpy as np

import stonet
from stonet.datasets.stations import stations

small = os.environ.get("TUTORIAL") == "small"  # the tests: few stations, seconds of training
network = stations(count=60 if small else 1500, days=20, unseen=0).episodes[0]
network = network.sel(channel="air_temperature")
network.to_netcdf("network.nc")
print(network)

# %%
# ## Two processes
#
# `--devices 2` starts two processes that share the batch of every step and add their gradients.
# On several machines `torchrun` does the same. The preset `tiny` keeps this page short; leave it
# out for a real training.

command = ["fit", "network.nc", "--preset", "tiny", "--set", f"train.tile={32 if small else 512}"]


def fit(run: str, *options: str) -> None:
    """Run `stonet fit` as at the command line."""
    words = [sys.executable, "-m", "stonet", *command, "-o", run, *options]
    subprocess.run(words, check=True, capture_output=True)
    print("stonet", *command, "-o", run, *options)


fit("runs/one")
fit("runs/two", "--devices", "2")

# %%
# ## The same model
#
# The number of processes changes neither the windows of a step nor, except for rounding, its
# gradient. Both runs forecast the same.

one, two = (stonet.STONet.load(f"runs/{name}") for name in ("one", "two"))
recent = network.isel(time=slice(-24, None))
first, second = one.predict(recent), two.predict(recent)
difference = np.abs(first.values - second.values).max()
print(f"largest difference of {first.values.size:,} forecasts: {difference:.1e} K")

# %%
# ## From disk to disk
#
# `stonet hindcast` forecasts from every past time of a long record, in bounded memory, and divides
# the times among processes as well. An interrupted run continues with `--resume`.

words = ["hindcast", "runs/one", "network.nc", "-o", "hindcast.zarr", "--step", "3d"]
subprocess.run([sys.executable, "-m", "stonet", *words], check=True, capture_output=True)
print("stonet", *words)

import xarray as xr

with xr.open_zarr("hindcast.zarr") as hindcast:
    print(dict(hindcast.sizes), list(hindcast.data_vars))

# %%
# ## The map
#
# A forecast at every station; more points only cost their share of the decoder.

from matplotlib.figure import Figure

from stonet.plotting.maps import MapProjection

figure = Figure(figsize=(8, 4.2), layout="compressed", dpi=80)
axes = figure.subplots()
projection = MapProjection.of(first.points)
projection.draw_dots(axes, first.points, first.values[-1, :, 0].astype(float), cmap="viridis")
figure.colorbar(axes.collections[0], label="air temperature (degC)", shrink=0.8)
axes.set_title(f"{len(first.points):,} stations, {first.datetimes[-1].astype('datetime64[m]')} UTC")
figure.savefig("network.png")
