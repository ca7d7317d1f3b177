"""Gaps and irregular times: data as they come, forecasts at any time, and a stream of frames."""

# %%
# ## Data with gaps
#
# Ten days of simulated water levels at 24 gauges, every 10 minutes on average, at irregular
# times. A tenth of the values is missing, and two gauges fail for a day. NaN means missing,
# everywhere; nothing has to be filled in.

import numpy as np

import stonet

rng = np.random.default_rng(2)
minutes = np.cumsum(rng.uniform(6, 14, 1500))
times = np.datetime64("2026-03-01", "ns") + (minutes * 6e10).astype("timedelta64[ns]")
x, y = rng.uniform(0, 40, (2, 24))  # km on a plane
tide = np.sin(2 * np.pi * (minutes[:, None] / 745 - x / 90))
level = 120 + 90 * tide + 10 * np.sin(minutes[:, None] / 190 + y / 15)
level[rng.random(level.shape) < 0.1] = np.nan
level[600:744, :2] = np.nan

gauges = stonet.Points(np.c_[x, y], "plane", tuple(f"gauge {i}" for i in range(24)))
field = stonet.Field(level[..., None], times, gauges, channels=("level",), units=("cm",))
print(field)

# %%
# ## Train
#
# A window is counted in frames; their true times go to the model. Missing values have no influence
# on any statistic, forecast or score.

model = stonet.STONet(preset="tiny").fit(field)
print(stonet.evaluate(model, field).droplevel(["points", "channel"]).round(2))

# %%
# ## Forecast at any time
#
# Lead times are durations or dates; they need not be multiples of the step. A gauge without recent
# values is forecast from its neighbours.

recent = field.isel(time=slice(-12, None))
forecast = model.predict(recent, times=["+5min", "+17min", "+40min"])
print(forecast.isel(station=slice(0, 2)).to_dataframe()[["time", "station", "level"]])

# %%
# What would the forecast be with a third of these values lost? Remove them and forecast again.

fewer = recent.values.copy()
fewer[rng.random(fewer.shape) < 1 / 3] = np.nan
with_gaps = stonet.Field(fewer, recent.times, gauges, channels=("level",), units=("cm",))
change = model.predict(with_gaps).values - model.predict(recent).values
print(f"mean change of the forecast: {np.abs(change).mean():.2f} cm")

# %%
# ## A stream
#
# In operation frames arrive one by one. A `Stream` keeps the last ones and forecasts at any moment;
# its forecasts equal those of `predict`.

stream = stonet.Stream(model.trained, gauges)
for time, values in zip(recent.datetimes, recent.values, strict=True):
    stream.observe(time, values)
latest = stream.forecast(times="+17min")
print(latest)
print("difference from predict:", float(np.abs(latest.values - forecast.values[1:2]).max()))

# %%
# ## Draw
#
# Observations of a gauge at their own times, gaps included, and the forecast every five minutes.

from matplotlib.figure import Figure

fine = model.predict(recent, times=[f"+{minutes}min" for minutes in range(5, 45, 5)])
figure = Figure(figsize=(7, 3), layout="constrained", dpi=80)
axes = figure.subplots()
past = field.isel(time=slice(-40, None))
axes.plot(past.datetimes, past.values[:, 4, 0], ".-", color="0.3", label="observed")
axes.plot(fine.datetimes, fine.values[:, 4, 0], color="#D55E00", label="forecast")
axes.set_ylabel("level (cm)")
axes.legend(frameon=False)
figure.savefig("gauge.png")
