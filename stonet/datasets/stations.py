"""Stations: a simulated year of weather at stations on the Earth, so that no download is needed.

The weather is that of `earth.py`. Here are the network (dense in some regions, sparse in others,
alone on islands), what a station adds of its own, and the gaps.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float64, Int64

from stonet.data.durations import DAY, UNITS
from stonet.data.field import Dataset, Field
from stonet.data.geometry import EARTH_RADIUS_KM, Points, curve_order
from stonet.data.splits import spread_alike
from stonet.datasets import earth
from stonet.datasets.card import Card
from stonet.errors import DataError

SEED = 2022
STEP = 3 * UNITS["h"]
START = int(np.datetime64("2025-01-01", "ns").astype(np.int64))
DAYS = 365
SPACING = 70.0  # km: two stations are not closer, where there is room

# Name, south, north, west, east in degrees, and the share of the stations in per mille.
REGIONS = (
    ("Iberia", 37.8, 42.5, -7.5, -1.5, 50), ("France", 44.5, 49.0, 0.0, 5.5, 50),
    ("Germany", 48.3, 52.8, 7.5, 13.5, 65), ("Poland", 49.8, 53.6, 15.5, 22.5, 40),
    ("Scandes", 60.0, 64.3, 10.5, 15.5, 40), ("Finland", 61.5, 66.5, 24.0, 28.5, 25),
    ("Balkan", 42.0, 47.0, 20.0, 26.0, 35), ("Anatolia", 37.5, 40.2, 30.0, 41.0, 30),
    ("Russia", 51.0, 60.0, 34.0, 55.0, 45), ("Siberia", 52.0, 66.0, 65.0, 125.0, 40),
    ("Kazakhstan", 44.5, 50.0, 62.0, 80.0, 20), ("India", 15.0, 26.0, 75.0, 80.5, 40),
    ("China", 25.5, 38.0, 104.0, 116.5, 60), ("Tibet", 30.0, 35.0, 86.0, 97.0, 25),
    ("Sahara", 17.0, 28.0, -5.0, 24.0, 18), ("Sahel", 9.0, 14.0, -8.0, 20.0, 22),
    ("Kenya", -6.0, 3.0, 31.5, 38.0, 18), ("Cape", -32.0, -23.0, 21.0, 29.0, 25),
    ("Plains", 34.0, 48.0, -103.0, -91.0, 80), ("Rockies", 34.0, 47.0, -117.0, -106.0, 50),
    ("Appalachia", 34.0, 42.5, -86.0, -78.5, 60), ("Canada", 50.5, 58.0, -118.0, -98.0, 35),
    ("Mexico", 19.0, 25.0, -103.5, -99.0, 20), ("Brazil", -22.0, -9.0, -54.0, -42.5, 45),
    ("Pampas", -37.5, -28.5, -66.0, -58.8, 30), ("Amazonia", -8.0, 0.0, -69.0, -54.0, 15),
    ("Andes", -21.0, -15.0, -68.5, -64.5, 10), ("Australia", -32.0, -20.0, 120.0, 148.0, 40),
    ("Victoria", -37.0, -33.0, 143.0, 149.0, 25),
)  # fmt: skip
ISLANDS = (  # stations far from all others: latitude and longitude
    (-20.2, 57.5), (-51.7, -59.0), (-43.9, 171.2), (43.3, 142.9), (7.3, 80.6),
)  # fmt: skip

BIAS = 0.7  # K: of a station's surroundings, constant
LOCAL = (0.7, 1.1, 1.1)  # standard deviation of what only one station feels, by channel
LOCAL_LAG = 9 * UNITS["h"]  # after which it has decayed to 1/e
MISSED = 0.01  # share of single reports that never arrive
OUTAGE_SHARE, OUTAGE_LENGTH = 0.03, 3 * DAY  # of a station: all channels; mean length
WIND_SHARE, WIND_LENGTH = 0.03, 12 * DAY  # of its anemometer
LATE_SHARE, LATEST = 0.05, 75 * DAY  # stations that opened within the first days

CARD = Card(
    name="stations",
    title="Simulated weather of 300 stations on the Earth",
    kind="simulated, with noise and gaps; no station and no value is real",
    source="stonet/datasets/stations.py and earth.py, deterministic by seed",
    page="none: it is made by this package",
    licence="Apache-2.0",
    channels="`air_temperature` (degC), `eastward_wind`, `northward_wind` (m/s)",
    shape="2920 x 300 x 3",
    step="3 h",
    period="365 days with the dates of 2025, UTC",
    split="by time, 70/10/20 %; 240 stations for training and 60 unseen",
    notes=(
        "**Simulated**, so that maps, intervals and tutorials run on a fresh machine without a "
        "file. Names such as `Iberia-03` say where a station would lie; nothing was measured "
        "there, and errors on these data say nothing about real weather.",
        "Temperature follows the sun (season, and days that are warmest in the afternoon of each "
        "longitude), latitude and elevation (6.5 K per km). Storms move along great circles at 9 "
        "to 16 m/s, with a cold front and a vortex of wind; weak easterly waves cross the tropics. "
        "Each station has a bias of its own, noise that lasts hours, lost reports, outages of "
        "days and of its anemometer for weeks; some open late. Of all values 4.7 % of the "
        "temperatures and 7.5 % of the winds are missing. Elevations are in `sites`.",
        "`stonet.datasets.stations.earth_weather(points, times)` gives the weather at any place "
        "and time of the year without noise, to check forecasts where no station is.",
    ),
)


def network(seed: int = SEED, count: int = 300) -> Points:
    """The positions of the stations, region by region; names such as Iberia-03.

    Args:
        seed: of the draw.
        count: number of stations, at least one.
    """
    rng = np.random.default_rng([seed, 1])
    alone = min(len(ISLANDS), count // 20)
    shares = np.array([region[5] for region in REGIONS], dtype=np.float64)
    edges = np.rint(np.cumsum(shares) / shares.sum() * (count - alone)).astype(int)
    places, names = [], []
    for (name, south, north, west, east, _), size in zip(
        REGIONS, np.diff(edges, prepend=0).tolist(), strict=True
    ):
        places.append(_scattered(rng, size, (south, north, west, east)))
        names += [f"{name}-{number:02d}" for number in range(1, size + 1)]
    places.append(np.array(ISLANDS, dtype=np.float64)[:alone].reshape(-1, 2))
    names += [f"Island-{number:02d}" for number in range(1, alone + 1)]
    return Points(np.concatenate(places).round(3), "sphere", tuple(names))


def _scattered(
    rng: np.random.Generator, count: int, box: tuple[float, float, float, float]
) -> Float64[np.ndarray, "station 2"]:
    """Random places in a box, each the first of ten draws with room around it, else the last."""
    south, north, west, east = box
    chosen = np.empty((0, 2))
    for _ in range(count):
        for _ in range(10):
            # the sine of the latitude is uniform where places are uniform in area
            sine = rng.uniform(*np.sin(np.deg2rad([south, north])))
            place = np.array([[np.rad2deg(np.arcsin(sine)), rng.uniform(west, east)]])
            both = Points(np.concatenate([place, chosen]), "sphere")
            far = both.geometry.distance(both.embedded[1:], both.embedded[:1])
            if (far * EARTH_RADIUS_KM > SPACING).all():
                break
        chosen = np.concatenate([chosen, place])
    return chosen


def outages(
    rng: np.random.Generator, frames: int, stations: int, share: float, length: float
) -> Bool[np.ndarray, "time node"]:
    """Where stations fail: failures and repairs at random, as in a Markov chain.

    Args:
        rng: source of the draws.
        frames: number of times.
        stations: number of stations.
        share: mean share of the times without values.
        length: mean length of an outage in frames.
    """
    ends, starts = 1.0 / length, share / ((1.0 - share) * length)
    failed = np.empty((frames, stations), dtype=bool)
    now = rng.random(stations) < share
    for frame, draw in enumerate(rng.random((frames, stations))):
        failed[frame] = now
        now = np.where(now, draw >= ends, draw < starts)
    return failed


def gaps(seed: int, frames: int, stations: int) -> Bool[np.ndarray, "time node channel"]:
    """Where values are missing: lost reports, failed stations and anemometers, late openings.

    Args:
        seed: of the draws.
        frames: number of times.
        stations: number of stations.
    """
    rng = np.random.default_rng([seed, 4])
    station = rng.random((frames, stations)) < MISSED
    station |= outages(rng, frames, stations, OUTAGE_SHARE, OUTAGE_LENGTH / STEP)
    late = rng.random(stations) < LATE_SHARE
    opening = np.where(late, rng.uniform(0.0, LATEST / STEP, stations), 0.0)
    station |= np.arange(frames)[:, None] < opening
    wind = station | outages(rng, frames, stations, WIND_SHARE, WIND_LENGTH / STEP)
    return np.stack([station, wind, wind], axis=2)


def _local(seed: int, frames: int, stations: int) -> Float64[np.ndarray, "time node channel"]:
    """What only one station feels: a first-order autoregression beside a constant bias."""
    rng = np.random.default_rng([seed, 2])
    memory = float(np.exp(-STEP / LOCAL_LAG))
    bias = rng.normal(size=(stations, 3)) * np.array([BIAS, 0.0, 0.0])
    state, series = rng.normal(size=(stations, 3)), np.empty((frames, stations, 3))
    for frame in range(frames):
        series[frame] = state
        state = memory * state + np.sqrt(1.0 - memory**2) * rng.normal(size=state.shape)
    return series * np.array(LOCAL) + bias


def stations(
    seed: int = SEED, count: int = 300, days: int = DAYS, unseen: int | None = None
) -> Dataset:
    """The data set: one episode of all stations.

    Args:
        seed: of places, storms, noise and gaps.
        count: number of stations, the unseen ones among them.
        days: from the start of the year.
        unseen: number of stations held out, spread as the others are (None: a fifth of all).

    Raises:
        DataError: there would be no station to train on, or no day.
    """
    unseen = count // 5 if unseen is None else unseen
    if days < 1 or not 0 <= unseen < count:
        raise DataError(
            f"{count} stations, {unseen} of them unseen, and {days} days; expected at least one "
            "day, and one station that is not held out."
        )
    points = network(seed, count)
    times = START + STEP * np.arange(days * (DAY // STEP))
    truth = earth_weather(points, times, seed)
    values = truth.values + _local(seed, len(times), count)
    values[gaps(seed, len(times), count)] = np.nan
    elevation = earth.terrain(points.coordinates)
    field = _field(values.round(1), points, times, {"altitude": elevation.round()}, seed)
    _, held_out = spread_alike(curve_order(points), unseen)
    return Dataset((field,), CARD.name, tuple(np.sort(held_out).tolist()))


def earth_weather(points: Points, times: Int64[np.ndarray, " time"], seed: int = SEED) -> Field:
    """The simulated truth at any points and times of the year, without noise and gaps.

    Args:
        points: on the sphere.
        times: nanoseconds since 1970 UTC, within 365 days from the start of 2025.
        seed: of the data set.

    Example:
        >>> field = open_dataset("stations").episodes[0]
        >>> truth = earth_weather(field.points, field.times)
    """
    storms = earth.Storms.draw(seed, START, START + DAYS * DAY)
    values = np.stack(earth.weather(points.coordinates, times, storms), axis=2)
    return _field(values, points, times, {}, seed)


def _field(
    values: Float64[np.ndarray, "time node channel"],
    points: Points,
    times: Int64[np.ndarray, " time"],
    sites: dict[str, Float64[np.ndarray, " node"]],
    seed: int,
) -> Field:
    return Field(
        values=values.astype(np.float32),
        times=times,
        points=points,
        channels=earth.CHANNELS,
        units=earth.UNITS,
        sites=sites,
        attrs={
            "title": CARD.title,
            "source": f"simulated by stonet.datasets.stations, seed {seed}",
            "licence": CARD.licence,
        },
        channel_attrs={name: {"standard_name": name} for name in earth.CHANNELS},
    )
