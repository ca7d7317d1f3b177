"""Brazilian stations, from file to live map: check, train, score, intervals, map, service."""

# %%
# ## The data
#
# INMET, the Brazilian weather service, publishes a ZIP of hourly station files for each year, and
# `stonet.read("2024.zip")` reads one as it is (about 600 stations). This page uses the named data
# set `inmet-brazil`, 332 stations of two years, of which the last four weeks are taken. Where its
# file is not on the machine, the simulated `stations` take its place.

import os

import numpy as np

import stonet
from stonet.datasets import find

small = os.environ.get("TUTORIAL") == "small"  # the tests: few stations, seconds of training
if not find("inmet-brazil").missing and not small:
    brazil = stonet.open_dataset("inmet-brazil", variables="air_temperature").episodes[0]
    field = brazil.sel(time=slice("2024-12-04", "2024-12-31"))
else:
    earth = stonet.open_dataset("stations", **({"count": 40, "days": 40} if small else {}))
    field = earth.episodes[0].sel(channel="air_temperature")
print(field)

# %%
# ## Check
#
# Real networks have gaps, stuck sensors and wrong positions. The report names them, and says what
# each means for a forecast; nothing is changed.

print(stonet.check(field))

# %%
# ## Train
#
# The training gets half a minute of CPU time here; more is better. A fifth of the stations is held
# out, to see what the forecast is worth where there is none. `folder` keeps the run.

if small:
    model = stonet.STONet(preset="tiny", settings=["data.unseen=0.2"])
    model.fit(field, folder="runs/brazil")
else:
    model = stonet.STONet(horizon="12h" if field.step < 10**13 else "36h",
                          settings=["data.unseen=0.2"])  # fmt: skip
    model.fit(field, folder="runs/brazil", minutes=0.4)
scores = stonet.evaluate(model, field).xs("air_temperature", level="channel")
print(scores[["mae", "rmse", "skill"]].round(3))

# %%
# ## A forecast with intervals, anywhere
#
# `at` takes places, `times` any lead times, `quantiles` the ends of intervals. Half of all values
# should lie between 0.25 and 0.75, and nine of ten between 0.05 and 0.95.

place = {"Brasilia": (-15.79, -47.88)}
chances = model.predict(
    field, at=place, times=["+1h", "+3h30min", "+6h"], quantiles=[0.05, 0.25, 0.5, 0.75, 0.95]
)
table = chances.to_dataframe().pivot(index="time", columns="quantile", values="air_temperature")
print(table.round(1))

# %%
# ## The map
#
# The model is asked at every node of a grid, not only at stations. Dots are the stations with a
# value in the last frames; far from all of them the forecast is an extrapolation, and is left
# out here.

from matplotlib.figure import Figure

from stonet.plotting.maps import MapProjection

box = (-73, -33, -35, 5)  # west, south, east, north
step = 5.0 if small else 0.5
grid = model.predict(field, at=f"grid:{step},{','.join(map(str, box))}", times="+6h")
near = np.flatnonzero(grid.sites["nearest_observation"] < 350)
shown = grid.take(near) if len(near) > 9 else grid

figure = Figure(figsize=(6, 5), layout="compressed", dpi=80)
axes = figure.subplots()
projection = MapProjection.of(grid.points)
projection.draw(axes, shown.points, shown.values[0, :, 0].astype(float), cmap="viridis")
inside = [box[1] < lat < box[3] and box[0] < lon < box[2] for _, lat, lon in field.points]
reporting = field.observed[-3:, :, 0].any(axis=0) & np.array(inside)
axes.plot(*projection.project(field.points.take(np.flatnonzero(reporting))).T, "k.", ms=3)
figure.colorbar(axes.collections[0], label="air temperature (degC)")
axes.set_title(f"{grid.datetimes[0].astype('datetime64[m]')} UTC, six hours ahead")
figure.savefig("map.png")

# %%
# ## The live map
#
# The run folder holds all that is needed from here on:
#
# - `stonet plot runs/brazil` draws maps, series, errors and reliability,
# - `stonet report runs/brazil -o report.html` writes one page on data, scores and intervals,
# - `stonet serve runs/brazil` opens the live map: click anywhere for that place's forecast.
#
# `stonet.STONet.load("runs/brazil")` continues in Python; its forecasts are the same.

again = stonet.STONet.load("runs/brazil").predict(field, at=place, times="+6h")
assert np.array_equal(again.values, model.predict(field, at=place, times="+6h").values)
