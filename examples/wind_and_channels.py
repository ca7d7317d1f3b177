"""Wind and several channels: components and speeds, units, scores by channel, arrows on a map."""

# %%
# ## Directions become components
#
# A direction in degrees jumps from 360 to 0, so that its mean and its errors mislead. stonet
# refuses to train on one, and says so. Turn speed and direction into two components first; the
# direction is where the wind comes *from*.

import os

import numpy as np

import stonet

small = os.environ.get("TUTORIAL") == "small"  # the tests: few stations, seconds of training


def components(speed: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Eastward and northward wind, stacked as two channels."""
    angle = np.deg2rad(direction)
    return np.stack([-speed * np.sin(angle), -speed * np.cos(angle)], axis=-1)


print("wind from the west, 5 m/s:", components(np.array(5.0), np.array(270.0)).round(3) + 0.0)

# %%
# ## A field with three channels
#
# The simulated `stations` have temperature and both components. A channel may be missing where
# the others are not: anemometers fail on their own. Nothing is filled in.

everything = stonet.open_dataset("stations", count=50 if small else 300, days=40 if small else 120)
europe = stonet.read(everything.episodes[0], bbox=(-10, 36, 45, 67))
print(europe)

# %%
# ## One model for all channels
#
# Each channel is scaled by its own mean and deviation, and all are inputs of each. Scores come by
# channel, in its units; `all` divides errors by the deviation, since K and m/s cannot be added.

if small:
    model = stonet.STONet(preset="tiny").fit(europe)
else:
    model = stonet.STONet(settings=["data.bounds=eastward_wind=-60:60"]).fit(europe, minutes=0.3)
scores = stonet.evaluate(model, europe).droplevel("points")
print(scores.loc[["persistence", "linear", "stonet"], ["mae", "rmse", "skill"]].round(3))

# %%
# Does the wind help the temperature? Train on the temperature alone, and compare.

alone = europe.sel(channel="air_temperature")
if small:
    narrow = stonet.STONet(preset="tiny").fit(alone)
else:
    narrow = stonet.STONet().fit(alone, minutes=0.2)
for name, one, data in (("with wind", model, europe), ("temperature alone", narrow, alone)):
    mae = stonet.evaluate(one, data).xs("air_temperature", level="channel").loc["stonet", "mae"]
    print(f"{name:18} MAE {float(np.ravel(mae)[0]):.3f} K")

# %%
# ## Speed and direction of a forecast
#
# The speed of mean components is less than the mean speed: opposite errors cancel. Say so where a
# speed matters, or train on the speed as a channel of its own, with `data.bounds=wind_speed=0:`.

forecast = model.predict(europe)
u, v = (forecast.values[..., forecast.channels.index(f"{way}_wind")] for way in
        ("eastward", "northward"))  # fmt: skip
speed, direction = np.hypot(u, v), np.rad2deg(np.arctan2(-u, -v)) % 360
for station in range(3):
    name = forecast.points.names[station]
    print(f"{name:10} {speed[0, station]:4.1f} m/s from {direction[0, station]:3.0f} degrees")

# %%
# ## Arrows on a map
#
# Temperature as colour, wind as arrows; both come from one forecast on a grid.

from matplotlib.figure import Figure

from stonet.plotting.maps import MapProjection

step = 6 if small else 2
grid = model.predict(europe, at=f"grid:{step},-8,38,40,56", times="+6h")
figure = Figure(figsize=(7, 4), layout="compressed", dpi=70)
axes = figure.subplots()
projection = MapProjection.of(grid.points)
colours, u, v = np.moveaxis(grid.values[0].astype(float), 1, 0)
projection.draw(axes, grid.points, colours, cmap="viridis")
figure.colorbar(axes.collections[0], label="air temperature (degC)")
arrows = axes.quiver(
    *projection.project(grid.points).T, u, v, color="white", scale=150, width=0.003
)
axes.quiverkey(arrows, 0.9, 1.05, 10, "10 m/s", color="black")
axes.set_title(f"{grid.datetimes[0].astype('datetime64[m]')} UTC")
figure.savefig("wind.png")
