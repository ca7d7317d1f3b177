"""A simulated weather of the Earth: temperature and wind as functions of place and time.

    T = T₀(latitude) + season + day - LAPSE · elevation + storms
    (u, v) = zonal wind · mixing by day + vortices of the storms

The sun of `stonet.data.solar_position` drives season and day. Storms are born at random, move
along great circles at a constant speed and carry a cold front through their centre. There is no
noise here and no station: `stations.py` adds both. Constants are chosen by hand, not fitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from stonet.data.durations import DAY
from stonet.data.durations import UNITS as DURATIONS
from stonet.data.geometry import EARTH_RADIUS_KM, GEOMETRIES
from stonet.data.solar_position import J2000, sun_direction

CHANNELS = ("air_temperature", "eastward_wind", "northward_wind")
UNITS = ("degC", "m s-1", "m s-1")

LAPSE = 0.0065  # K per metre of elevation
HEATING = 80.0  # K of the season per unit of daily insolation, over the middle of a continent
SEASON_LAG = 28 * DAY  # of the temperature behind the sun
DAY_LAG = 3.0  # hours: time constant of the ground, which puts the maximum after local noon
STORMS_PER_DAY = 3.0  # born on the Earth
BEFORE = 12 * DAY  # storms are drawn from so long before the start: longer than any of them lives

# Mountain ranges: latitude and longitude of both ends, height in metres, half width in km.
RANGES = (
    (60, -135, 40, -107, 2200, 380), (40, -107, 22, -102, 1900, 330), (8, -75, -16, -70, 3200, 180),
    (-16, -70, -48, -72, 2700, 170), (44, 6, 47, 14, 1700, 130), (42.5, -1, 42.5, 2, 1400, 70),
    (31, -8, 36, 3, 1500, 120), (61, 8, 68, 17, 1000, 120), (41, 32, 33, 52, 1500, 260),
    (42, 44, 41, 47, 1900, 110), (33, 78, 34, 98, 4400, 480), (43, 75, 50, 95, 1800, 280),
    (8, 38, -4, 36, 1800, 330), (-22, 29, -31, 27, 1400, 300), (-15, -48, -22, -45, 850, 380),
    (-24, 151, -37, 148, 800, 130), (36, -83, 43, -73, 550, 150), (50, -122, 37, -119, 1200, 120),
)  # fmt: skip
# Middles of continents: latitude, longitude and radius in km.
INTERIORS = (
    (62, 100, 2600), (50, 45, 1300), (40, 85, 1900), (48, -102, 1500), (24, 8, 1900),
    (24, 45, 900), (-25, 133, 1200), (-15, -52, 900), (-22, 24, 800),
)  # fmt: skip

Unit = Float64[np.ndarray, "node 3"]  # places as unit vectors


class Weather(NamedTuple):
    """The three channels, each (time, node).

    Args:
        temperature: in degC.
        east: wind towards the east, in m/s.
        north: wind towards the north, in m/s.
    """

    temperature: Float64[np.ndarray, "time node"]
    east: Float64[np.ndarray, "time node"]
    north: Float64[np.ndarray, "time node"]


def terrain(coordinates: Float64[np.ndarray, "node 2"]) -> Float64[np.ndarray, " node"]:
    """The elevation in metres: ranges of mountains over low hills.

    Args:
        coordinates: latitude and longitude in degrees.
    """
    place, ranges = _unit(coordinates), np.array(RANGES, dtype=np.float64)
    start, end = _unit(ranges[:, :2]), _unit(ranges[:, 2:4])
    along = np.einsum("nrm,rm->nr", place[:, None] - start, end - start)
    share = np.clip(along / ((end - start) ** 2).sum(1), 0.0, 1.0)[..., None]
    foot = (1.0 - share) * start + share * end
    foot /= np.linalg.norm(foot, axis=-1, keepdims=True)
    far = EARTH_RADIUS_KM * GEOMETRIES["sphere"].distance(place[:, None], foot)
    mountains = (ranges[:, 4] * np.exp(-0.5 * (far / ranges[:, 5]) ** 2)).max(axis=1)
    lat, lon = np.deg2rad(coordinates).T
    hills = np.sin(41.0 * lat + 2.0) * np.sin(37.0 * lon) + np.sin(67.0 * lat) * np.sin(59.0 * lon)
    return (120.0 + mountains) * (1.0 + 0.25 * hills)


def continentality(coordinates: Float64[np.ndarray, "node 2"]) -> Float64[np.ndarray, " node"]:
    """From 0.45 on an ocean to 1.3 in the middle of a continent.

    Args:
        coordinates: latitude and longitude in degrees.
    """
    middles = np.array(INTERIORS, dtype=np.float64)
    angle = GEOMETRIES["sphere"].distance(_unit(coordinates)[:, None], _unit(middles[:, :2]))
    bells = np.exp(-0.5 * (EARTH_RADIUS_KM * angle / middles[:, 2]) ** 2)
    return 0.45 + 0.85 * bells.max(axis=1)


def daily_insolation(
    latitude: Float64[np.ndarray, " node"], times: Int64[np.ndarray, " time"]
) -> Float64[np.ndarray, "time node"]:
    """The mean over a day of the sine of the solar elevation, zero by night.

        Q = (h sin φ sin δ + cos φ cos δ sin h) / π,    cos h = -tan φ tan δ

    Args:
        latitude: φ in degrees.
        times: nanoseconds since 1970 UTC; they give the declination δ.
    """
    sin_declination = sun_direction(times)[:, 2:].astype(np.float64)
    cos_declination = np.sqrt(1.0 - sin_declination**2)
    sin, cos = np.sin(np.deg2rad(latitude)), np.maximum(np.cos(np.deg2rad(latitude)), 1e-9)
    half_day = np.arccos(np.clip(-sin * sin_declination / (cos * cos_declination), -1.0, 1.0))
    return (half_day * sin * sin_declination + cos * cos_declination * np.sin(half_day)) / np.pi


def day_cycle(place: Unit, times: Int64[np.ndarray, " time"]) -> Float64[np.ndarray, "time node"]:
    """The warming of the ground by the last day of sun, less that day's mean; about -0.3 to 0.5.

        ∫ s(t - a) (w(a) - 1/24) da over 24 hours,    w(a) ∝ exp(-a / DAY_LAG)

    where s ≥ 0 is the sine of the solar elevation.

    Args:
        place: unit vectors.
        times: nanoseconds since 1970 UTC.
    """
    ages = np.arange(0.5, 24.0)  # hours
    weights = np.exp(-ages / DAY_LAG)
    weights = weights / weights.sum() - 1.0 / len(ages)
    total = np.zeros((len(times), len(place)))
    for age, weight in zip(ages, weights, strict=True):
        sun = sun_direction(times - round(age * DURATIONS["h"])).astype(np.float64)
        total += weight * np.maximum(sun @ place.T, 0.0)
    return total


@dataclass(frozen=True, eq=False)
class Storms:
    """Cyclones with a cold front, each on a great circle.

    In coordinates along its track, one adds

        T' = a e tanh(x / w) exp(-(x² + y²) / 2 r²)
        (u, v)' = b e (-y, x) / r exp(1/2 - (x² + y²) / 2 r²),    e = sin²(π age / life)

    x ahead of the centre and y to its left (to its right in the south).

    Args:
        birth: nanoseconds since 1970 UTC.
        life: in nanoseconds.
        start: unit vectors of the places of birth.
        heading: unit vectors of the directions at birth.
        speed: in m/s.
        warmth: a in K.
        wind: b in m/s.
        radius: r in km.
        front: w in km.
    """

    birth: Int64[np.ndarray, " storm"]
    life: Int64[np.ndarray, " storm"]
    start: Float64[np.ndarray, "storm 3"]
    heading: Float64[np.ndarray, "storm 3"]
    speed: Float64[np.ndarray, " storm"]
    warmth: Float64[np.ndarray, " storm"]
    wind: Float64[np.ndarray, " storm"]
    radius: Float64[np.ndarray, " storm"]
    front: Float64[np.ndarray, " storm"]

    @staticmethod
    def draw(seed: int, start: int, stop: int) -> Storms:
        """The storms that live between two times.

        Args:
            seed: of the draw.
            start: nanoseconds since 1970 UTC.
            stop: nanoseconds since 1970 UTC.
        """
        rng = np.random.default_rng([seed, 3])
        count = round(STORMS_PER_DAY * (stop - start + BEFORE) / DAY)
        draws = rng.random((9, count))
        side = np.where(draws[0] < 0.5, 1.0, -1.0)
        latitude = side * (33.0 + 27.0 * draws[1])
        tropical = draws[8] < 0.2  # easterly waves: weak, and they move west
        latitude = np.where(tropical, side * (6.0 + 12.0 * draws[1]), latitude)
        place = _unit(np.stack([latitude, 360.0 * draws[2] - 180.0], axis=1))
        east, north = _east_and_north(place)
        turn = np.deg2rad(side * (5.0 + 35.0 * draws[3]))[:, None]  # towards the pole
        heading = np.where(tropical[:, None], -east, np.cos(turn) * east + np.sin(turn) * north)
        strength = np.where(tropical, 0.25, 1.0) * (0.5 + 0.7 * draws[4])
        return Storms(
            birth=start - BEFORE + ((stop - start + BEFORE) * draws[5]).astype(np.int64),
            life=(DAY * (5.0 + 6.0 * draws[6])).astype(np.int64),
            start=place,
            heading=heading,
            speed=np.where(tropical, 6.0, 9.0 + 7.0 * draws[7]),
            warmth=9.0 * strength,
            wind=11.0 * strength,
            radius=550.0 + 450.0 * draws[3],
            front=120.0 + 120.0 * draws[1],
        )

    def weather(self, place: Unit, times: Int64[np.ndarray, " time"]) -> Weather:
        """What all storms add to temperature and wind.

        Args:
            place: unit vectors.
            times: nanoseconds since 1970 UTC.
        """
        total = Weather(*np.zeros((3, len(times), len(place))))
        local = _east_and_north(place)
        reach = np.sin(4.0 * self.radius / EARTH_RADIUS_KM)  # on both sides of the track
        near = np.abs(np.cross(self.start, self.heading) @ place.T) < reach[:, None]
        for storm, (first, life) in enumerate(zip(self.birth, self.life, strict=True)):
            frames = np.flatnonzero((times > first) & (times < first + life))
            nodes = np.flatnonzero(near[storm])
            if len(frames) and len(nodes):
                index = np.ix_(frames, nodes)
                added = self._one(storm, place[nodes], times[frames], [d[nodes] for d in local])
                for channel, values in zip(total, added, strict=True):
                    channel[index] += values
        return total

    def _one(
        self, storm: int, place: Unit, times: Int64[np.ndarray, " frame"], local: list[Unit]
    ) -> Weather:
        """What one storm adds at places near its track during its life."""
        age = (times - self.birth[storm]) / 1e9
        angle = (age * self.speed[storm] / 1e3 / EARTH_RADIUS_KM)[:, None]
        start, heading = self.start[storm], self.heading[storm]
        centre = np.cos(angle) * start + np.sin(angle) * heading
        ahead = np.cos(angle) * heading - np.sin(angle) * start
        left = np.cross(start, heading)
        radius, front = self.radius[storm], self.front[storm]
        x = EARTH_RADIUS_KM * np.arctan2(ahead @ place.T, centre @ place.T)
        y = EARTH_RADIUS_KM * np.arcsin(place @ left)
        envelope = np.sin(np.pi * age / (self.life[storm] / 1e9))[:, None] ** 2
        bell = envelope * np.exp(-0.5 * (x**2 + y**2) / radius**2)
        spin = np.sign(start[2]) * self.wind[storm] * np.exp(0.5) * bell / radius
        east, north = (spin * (x * (unit @ left) - y * (ahead @ unit.T)) for unit in local)
        return Weather(self.warmth[storm] * np.tanh(x / front) * bell, east, north)


def weather(
    coordinates: Float64[np.ndarray, "node 2"],
    times: Int64[np.ndarray, " time"],
    storms: Storms,
    elevation: Float64[np.ndarray, " node"] | None = None,
) -> Weather:
    """Temperature and wind at any places and times.

    Args:
        coordinates: latitude and longitude in degrees.
        times: nanoseconds since 1970 UTC.
        storms: that move over the Earth.
        elevation: in metres; that of the terrain by default.
    """
    place, latitude = _unit(coordinates), coordinates[:, 0]
    height = terrain(coordinates) if elevation is None else elevation
    inland = continentality(coordinates)
    year = J2000 + np.arange(73) * 5 * DAY
    season = daily_insolation(latitude, times - SEASON_LAG)
    season = HEATING * inland * (season - daily_insolation(latitude, year).mean(axis=0))
    day = day_cycle(place, times)
    phi = np.deg2rad(latitude)
    sea_level = 27.0 - 40.0 * np.abs(np.sin(phi)) ** 2.5
    moving = storms.weather(place, times)
    temperature = sea_level - LAPSE * height + season + (5.0 + 7.0 * inland) * day
    mixing = 1.0 + 0.8 * day
    return Weather(
        temperature + moving.temperature,
        mixing * (moving.east - 3.5 * np.cos(3.0 * phi)),
        mixing * (moving.north - 1.2 * np.sin(6.0 * phi)),
    )


def _unit(coordinates: Float64[np.ndarray, "node 2"]) -> Unit:
    return GEOMETRIES["sphere"].embed(coordinates)


def _east_and_north(place: Unit) -> tuple[Unit, Unit]:
    """The local directions as unit vectors; at the poles along the meridian of Greenwich."""
    ring = np.hypot(place[:, 0], place[:, 1])
    safe = np.where(ring > 0.0, ring, 1.0)
    cos = np.where(ring > 0.0, place[:, 0] / safe, 1.0)
    sin = np.where(ring > 0.0, place[:, 1] / safe, 0.0)
    east = np.stack([-sin, cos, np.zeros_like(sin)], axis=1)
    north = np.stack([-place[:, 2] * cos, -place[:, 2] * sin, ring], axis=1)
    return east, north
