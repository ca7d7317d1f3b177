"""Forecasts at new sites: stations that training never saw, with and without observations."""

# %%
# ## Stations to train on and stations to test
#
# Twelve days of simulated hourly wind at 40 stations. Every fifth station is held out: neither its
# values nor its position enter the training.

import numpy as np

import stonet

rng = np.random.default_rng(1)
hours = np.arange("2026-03-01", "2026-03-13", dtype="datetime64[h]")
places = stonet.Points(np.c_[rng.uniform(50, 54, 40), rng.uniform(-4, 1, 40)], "sphere")
lat, lon = places.coordinates.T
phase = 2 * np.pi * (np.arange(len(hours))[:, None] / 30 - (lon + lat - 50) / 8)
wind = 8 + 3 * np.sin(phase) + np.sin(2.3 * phase + 1) + rng.normal(scale=0.2, size=phase.shape)
field = stonet.Field(wind[..., None], hours, places, channels=("wind",), units=("m s-1",))

dataset = stonet.Dataset((field,), "wind", unseen=tuple(range(0, 40, 5)))
print(dataset)

# %%
# ## Train and score
#
# `evaluate` reports three groups of points: `seen` ones, `unseen` ones that have observations when
# the forecast is issued, and the same ones without any observation (`unseen-no-history`).

model = stonet.STONet(preset="tiny").fit(dataset)
scores = stonet.evaluate(model, dataset).xs("wind", level="channel")
print(scores.loc[["persistence", "stonet"], ["mae", "skill"]].round(3))

# %%
# ## A new station with observations
#
# Add it to the field. It joins the graph with its own past and also informs its neighbours. Nothing
# is trained again.

joined = model.predict(field)  # all 40 stations
print(joined.isel(time=0, station=slice(0, 3)).to_dataframe()[["time", "station", "wind"]])

# %%
# ## A place without observations
#
# Give its position as `at`. A table, a CSV file of sites, pairs of coordinates and a dictionary of
# names are understood.

observed = field.take(dataset.seen)
sites = {"Leeds": (53.80, -1.55), "Bath": (51.38, -2.36), "far away": (57.0, 8.0)}
forecast = model.predict(observed, at=sites, times=["+1h", "+2h30min", "+4h"])
print(forecast.to_dataframe()[["time", "station", "wind"]])

# %%
# Two numbers say how far a forecast can be trusted: the distance to the nearest observation in km,
# and the support: 0 at an observed point, 1 within the radius of the decoder, 2 beyond it
# (extrapolation).

for name, distance, support in zip(
    forecast.points.names,
    forecast.sites["nearest_observation"],
    forecast.sites["support"],
    strict=True,
):
    print(f"{name:10} {distance:6.0f} km  support {support:.0f}")
