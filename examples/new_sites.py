"""New sites and their intervals: stations that training never saw, with observations or none."""

# %%
# ## Stations to train on and stations to test
#
# `stations` is a simulated weather of the Earth, every three hours; half of its 300 stations and
# four months are enough here. A fifth of them is held out: neither their values nor their positions
# enter the training. Data of your own are split by `stonet.Dataset((field,), unseen=...)` or by the
# setting `data.unseen=0.2`.

import os

import stonet

small = os.environ.get("TUTORIAL") == "small"  # the tests: few stations, seconds of training
earth = stonet.open_dataset("stations", count=50 if small else 150, days=40 if small else 120)
dataset = stonet.Dataset(
    (earth.episodes[0].sel(channel="air_temperature"),), "stations", earth.unseen
)
print(dataset)

# %%
# ## Train and score
#
# `evaluate` reports three groups of points: `seen` ones, `unseen` ones that have observations when
# the forecast is issued, and the same ones without any observation (`unseen-no-history`).

if small:
    model = stonet.STONet(preset="tiny").fit(dataset)
else:
    model = stonet.STONet().fit(dataset, minutes=0.3)
scores = stonet.evaluate(model, dataset).xs("air_temperature", level="channel")
print(scores.loc[["persistence", "linear", "stonet"], ["mae", "skill"]].round(3))

# %%
# ## A new station with observations
#
# Add it to the field. It joins the graph with its own past and also informs its neighbours. Nothing
# is trained again. Here the model forecasts what follows the record at all stations.

field = dataset.episodes[0]
joined = model.predict(field)
print(
    joined.isel(time=0, station=slice(0, 3)).to_dataframe()[["time", "station", "air_temperature"]]
)

# %%
# ## A place without observations
#
# Give its position as `at`. A table, a CSV file of sites, pairs of coordinates and a dictionary of
# names are understood. Two numbers say how far a forecast can be trusted: the distance to the
# nearest observation in km, and the support: 0 at an observed point, 1 within the radius of the
# decoder, 2 beyond it (extrapolation).

observed = field.take(dataset.seen)
sites = {"Leipzig": (51.34, 12.37), "Denver": (39.74, -104.99), "Azores": (38.7, -27.2)}
forecast = model.predict(observed, at=sites, times=["+3h", "+7h30min", "+12h"])
print(forecast.to_dataframe()[["time", "station", "air_temperature"]])
for name, distance, support in zip(
    forecast.points.names,
    forecast.sites["nearest_observation"],
    forecast.sites["support"],
    strict=True,
):
    print(f"{name:10} {distance:6.0f} km  support {support:.0f}")

# %%
# ## Its intervals
#
# Intervals come from the errors at stations that were hidden in the validation part, by their
# distance to the nearest observation: they are wide where nothing is near.

leads = [f"+{hours}h" for hours in range(3, 37, 3)]
if small:
    leads = leads[:4]
chances = model.predict(observed, at=sites, times=leads, quantiles=[0.05, 0.25, 0.5, 0.75, 0.95])
low, high = chances.interval(90)
width = (high.values - low.values)[:, :, 0].mean(axis=0)
for name, kelvin in zip(forecast.points.names, width, strict=True):
    print(f"{name:10} 90 % interval {kelvin:5.1f} K wide on average")

# %%

from matplotlib.figure import Figure

figure = Figure(figsize=(9, 3), layout="constrained", dpi=80)
for site, axes in enumerate(figure.subplots(1, 3, sharey=False)):
    hours = (low.times - field.times[-1]) / 3.6e12
    for level, alpha in ((90, 0.2), (50, 0.4)):
        ends = [end.values[:, site, 0] for end in chances.interval(level)]
        axes.fill_between(hours, *ends, alpha=alpha, color="#D55E00", label=f"{level} %")
    axes.plot(hours, chances.at(0.5).values[:, site, 0], color="#D55E00")
    axes.set(title=forecast.points.names[site], xlabel="lead (h)")
figure.axes[0].set_ylabel("air temperature (degC)")
figure.axes[0].legend(frameon=False)
figure.savefig("intervals.png")

# %%
# ## Are they right?
#
# Scores of the test part say so: the share of values within the 90 % intervals at stations that
# the model never saw.

print(scores.loc["stonet"].filter(like="coverage").round(3))
