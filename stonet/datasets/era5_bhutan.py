"""ERA5 over Bhutan: temperature, humidity, wind and solar radiation, hourly for two years.

Relative humidity is computed from temperature T and dew point by Magnus' formula over water:

    r = 100 e(dew point) / e(T),    e(T) = exp(17.62 t / (243.12 + t)),    t = T - 273.15 K
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Float64

from stonet.config import ReadConfig
from stonet.data.field import Dataset, Field
from stonet.datasets.card import Card, File, labelled
from stonet.datasets.download import obtain
from stonet.errors import UsageError
from stonet.io.read import read_with
from stonet.system.spill import allocate

FILES = {
    "10m_u_component_of_wind_2019.grib": "8763e7cb4a7acf152ade7543df2c8700"
    "d0aaa4bae235f09608e691646d85b50d",
    "10m_u_component_of_wind_2020.grib": "261b95ebfcd815641afe377643b645ff"
    "43f3262e6f9b60f92adef0eb4612f649",
    "10m_v_component_of_wind_2019.grib": "a05c4d963d8506f87603a026bdaa409c"
    "9b26bae8780f6e8ea9b860b452f17f72",
    "10m_v_component_of_wind_2020.grib": "1affb9813c68804e459ddd031ab354e0"
    "fe7eba8be9178ae951e4233e439ca0c3",
    "2m_dewpoint_temperature_2019.grib": "7ff812d84f481f739590533f6a6f04e5"
    "1f1f245b9921e16859a6bf8ce67e826c",
    "2m_dewpoint_temperature_2020.grib": "df44d7ac8c729c62b36115ebd71e54a5"
    "6868a2a30dc6b672104cfdebb1121bf4",
    "2m_temperature_2019.grib": "6d30f0db3c3c3353ee0d75eb588044486d8b18ac867bcf1bb12c936464a23ff0",
    "2m_temperature_2020.grib": "84ed340adbe9b073f122c885d3de64fbec8c8653c8e1a8f071ba1c2e0dc76184",
    "surface_solar_radiation_downwards_2019.grib": "324d433154c215f8027b76a21cdc5342"
    "985df08e11d3ff60a3e1dc38dfa0e168",
    "surface_solar_radiation_downwards_2020.grib": "3ff00b601e035ee01de5e43b5c4657cc"
    "a58add3b48b864d66a24c655749d5054",
}
CARD = Card(
    name="era5-bhutan",
    title="Weather over Bhutan: temperature, humidity, wind and sunshine, 2019 and 2020",
    kind="reanalysis: a weather model held to observations, not measured at the points",
    source="ERA5, Copernicus Climate Change Service (C3S); files of "
    "`marlon-cooh/bhutan_climate_modeling`, folder `era5_data_grib_raw`",
    page="https://github.com/marlon-cooh/bhutan_climate_modeling",
    licence="Copernicus licence: free use, with attribution to C3S / ECMWF",
    channels="`t2m` (K), `r2m` (%), `u10`, `v10` (m s**-1), `ssrd` (J m**-2 in the hour before); "
    "choose with `variables`",
    shape="17544 x 135 x 5 (9 x 15 grid of 0.25°, 28.5 to 26.5° N, 88.5 to 92° E)",
    step="1 h",
    period="2019 and 2020",
    split="by time, 70/10/20 %; no unseen points of its own (`data.unseen`)",
    notes=(
        "`r2m` is relative humidity from temperature and dew point by Magnus' formula over water "
        "(17.62 and 243.12 °C), cut at 100 %. `ssrd`, sunshine on the ground, is a stand-in for "
        "cloud cover, which these files do not hold: it is zero at night and is not cloud cover. "
        "No gap. The day's highest sun is at 6 UTC.",
    ),
    files=tuple(File(name, digest) for name, digest in FILES.items()),
)
SOURCES = {  # for each channel the variables it needs, and the beginning of their files' names
    "t2m": {"t2m": "2m_temperature"},
    "r2m": {"t2m": "2m_temperature", "d2m": "2m_dewpoint_temperature"},
    "u10": {"u10": "10m_u_component_of_wind"},
    "v10": {"v10": "10m_v_component_of_wind"},
    "ssrd": {"ssrd": "surface_solar_radiation_downwards"},
}
ZERO_CELSIUS = 273.15


def era5_bhutan(variables: str | Sequence[str] = tuple(SOURCES)) -> Dataset:
    """All 135 points.

    Args:
        variables: names of channels, as a list or separated by commas; all by default.
    """
    names = variables.split(",") if isinstance(variables, str) else list(variables)
    names = [name.strip() for name in names]
    unknown = [name for name in names if name not in SOURCES]
    if unknown or not names or len(set(names)) < len(names):
        raise UsageError(
            f"Variables {names} of data set '{CARD.name}'; expected some of: {', '.join(SOURCES)}."
        )
    needed = {variable: start for name in names for variable, start in SOURCES[name].items()}
    files = [f for f in CARD.files if f.name.startswith(tuple(needed.values()))]
    field = read_with(obtain(CARD, files), ReadConfig(variables=tuple(needed)))
    return Dataset((_with_channels(field, names),), CARD.name)


def _with_channels(field: Field, names: Sequence[str]) -> Field:
    """The field with these channels, of which the humidity is computed."""
    if list(field.channels) == names:
        return labelled(field, CARD)
    shape = (*field.values.shape[:2], len(names))
    values, mask = allocate(shape, np.float32, np.bool_)
    units = []
    for number, name in enumerate(names):
        parts = [field.channels.index(variable) for variable in SOURCES[name]]
        mask[..., number] = field.observed[..., parts].all(-1)
        if name == "r2m":
            humidity = relative_humidity(field.values[..., parts[0]], field.values[..., parts[1]])
            values[..., number] = np.where(mask[..., number], humidity, np.nan)
            units.append("%")
        else:
            values[..., number] = field.values[..., parts[0]]
            units.append(field.units[parts[0]])
    changes = {"values": values, "mask": mask, "channels": tuple(names), "units": tuple(units)}
    return labelled(field, CARD, **changes)


def relative_humidity(
    temperature: Float32[np.ndarray, "time node"], dew_point: Float32[np.ndarray, "time node"]
) -> Float32[np.ndarray, "time node"]:
    """Relative humidity in per cent, at most 100, by Magnus' formula.

    Args:
        temperature: in kelvin.
        dew_point: in kelvin.
    """
    ratio = np.exp(_exponent(dew_point) - _exponent(temperature))
    return np.minimum(100.0 * ratio, 100.0).astype(np.float32)


def _exponent(kelvin: Float32[np.ndarray, "time node"]) -> Float64[np.ndarray, "time node"]:
    """The exponent of Magnus' formula."""
    celsius = kelvin.astype(np.float64) - ZERO_CELSIUS
    return 17.62 * celsius / (243.12 + celsius)
