"""From a table of stations to a map of the forecast: read, check, train, score, forecast, draw."""

# %%
# ## The table
#
# Usually you have this file already. Here it is simulated, so that the example runs anywhere:
# hourly temperatures of 30 stations, with a daily cycle, a front that moves east, noise, and 2 % of
# the values missing.

import numpy as np
import pandas as pd

rng = np.random.default_rng(0)
hours = np.arange(20 * 24)
lat, lon = rng.uniform(45.5, 47.5, 30), rng.uniform(6.0, 10.0, 30)
daily_cycle = 5 * np.sin(2 * np.pi * (hours[:, None] - 9) / 24)
front = 4 * np.sin(2 * np.pi * (hours[:, None] / 60 - (lon - 6) / 5))
temperature = 10 + daily_cycle + front + rng.normal(scale=0.3, size=front.shape)
temperature[rng.random(temperature.shape) < 0.02] = np.nan

table = pd.DataFrame(
    {
        "station": np.tile([f"S{i:02d}" for i in range(30)], len(hours)),
        "time": np.repeat(pd.Timestamp("2026-03-01") + pd.to_timedelta(hours, "h"), 30),
        "lat": np.tile(lat, len(hours)),
        "lon": np.tile(lon, len(hours)),
        "temperature (degC)": temperature.ravel().round(2),
    }
)
table.to_csv("stations.csv", index=False)
print(table.head(3))

# %%
# ## Read and check
#
# `stonet.read` recognises the columns. `stonet.check` finds gaps, stuck sensors, wrong units
# and wrong positions before any time is spent on training.

import stonet

field = stonet.read("stations.csv")
print(field)
print(stonet.check(field))

# %%
# ## Train and score
#
# The preset `tiny` trains in seconds and is meant for first trials: 6 steps in, 4 out. Leave
# `preset` out for the real model, and limit the time with `fit(field, minutes=10)`. The first 70 %
# of the times train, the next 10 % validate; scores are those of the last 20 %, beside reference
# forecasts. `skill` is 1 - MAE / MAE of persistence.

model = stonet.STONet(preset="tiny").fit(field)
print(stonet.evaluate(model, field).droplevel(["points", "channel"]).round(2))

# %%
# ## Forecast on a grid
#
# A forecast is a `Field` like the observations, at any points and any times. It can be written to
# NetCDF, Zarr or CSV, or be turned into an xarray or pandas object.

grid = model.predict(field, at="grid:0.1,6,45.5,10,47.5", times=["+90min", "+4h"])
grid.to_netcdf("map.nc")
print(grid)

# %%
# ## Draw
#
# The map shows the forecast for 90 minutes after the last observation; dots are the stations.

from matplotlib.figure import Figure

from stonet.plotting.figures import series
from stonet.plotting.maps import MapProjection

figure = Figure(figsize=(6, 4), layout="compressed")
axes = figure.subplots()
projection = MapProjection.of(grid.points)
projection.draw(axes, grid.points, grid.values[0, :, 0].astype(float), cmap="viridis")
axes.plot(*projection.project(field.points).T, "o", color="black", markersize=3)
figure.colorbar(axes.collections[0], label="temperature (degC)")
axes.set_title(f"{grid.datetimes[0].astype('datetime64[m]')} UTC")
figure.savefig("map.png")

# %%
# At a station, past and forecast are drawn in one figure.

series(field.isel(time=slice(-24, None)), model.predict(field), node=0).savefig("station.png")
