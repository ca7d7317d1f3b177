"""What is known of a quantity by its name or unit: its physical limits, and whether it is an angle.

A quantity is recognised by the CF standard name of a channel, otherwise by the channel's name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stonet.errors import UsageError, unknown_name

Bounds = tuple[float | None, float | None]  # low, high; None: not given


class Quantity(NamedTuple):
    """A physical quantity: how it is recognised, and the limits that it never leaves.

    Args:
        name: as messages and checks use it.
        standard_name: pattern of CF standard names.
        channel: pattern of channel names.
        limits: by unit; "*": in any other unit.
    """

    name: str
    standard_name: str
    channel: str
    limits: Mapping[str, Bounds]


POSITIVE: Mapping[str, Bounds] = {"*": (0.0, None)}
SHARE: Mapping[str, Bounds] = {"%": (0.0, 100.0), "1": (0.0, 1.0), "*": (0.0, None)}
QUANTITIES = (
    Quantity(
        "temperature",
        r"(air|sea|soil|surface|dew_point).*_temperature",
        r"temp|dew_?point|^t2m|^d2m|^2[td]$|^tas|^ta$|^tmax|^tmin|^tavg|^tdp|^sst|^skt",
        {"K": (0.0, None), "degC": (-273.15, None), "degF": (-459.67, None)},
    ),
    Quantity(
        "pressure",
        r".*air_pressure.*",
        r"pressure|^pres|^mslp?$|^slp|^sp$|^psl|^prmsl",
        {"Pa": (0.0, None), "hPa": (0.0, None)},
    ),
    Quantity("humidity", r"relative_humidity", r"humid|^rh|^relhum|^hurs", SHARE),
    Quantity(
        "fraction",
        r".*area_fraction.*",
        r"cloud|^tcc$|^clt$|capacity_?factor|^cf_",
        {"%": (0.0, 100.0), "*": (0.0, None)},
    ),
    Quantity(
        "wave period",
        r"sea_surface_.*period.*",
        r"(wave|swell|peak)_?period|^mwp$|^dpd$|^apd$|^tm0\d|^vt[mp]|^period$",
        POSITIVE,
    ),
    Quantity(
        "wave height",
        r"sea_surface_.*height.*(?<!above_geoid)(?<!above_sea_level)",
        r"(wave|swell|significant)_?height|^swh$|^hs$|^h_?m0|^wvht|^vhm0",
        POSITIVE,
    ),
    Quantity(
        "precipitation",
        r".*(rainfall|precipitation|snowfall).*",
        r"precip|rain|^tp$|^pr$|snow",
        POSITIVE,
    ),
    Quantity(
        "wind speed",
        r"(wind|sea_water)_speed.*",
        r"wind_?speed|^ws|^ff$|^sfcwind|^si10|gust|current_?speed",
        POSITIVE,
    ),
    Quantity(
        "radiation",
        r".*downwelling_(short|long)wave_flux.*|.*(solar|direct|diffuse).*irradiance.*",
        r"^(?!.*net).*(radiation|irradiance|^ssrd|^ghi|^dni|^dhi|^rsds|shortwave|^swdown)",
        POSITIVE,
    ),
    Quantity(
        "concentration",
        r"(mass|mole|number)_(concentration|fraction)_of_.*",
        r"^pm_?\d|^(o3|no|no2|nox|so2|co|co2|nh3|ch4)$|ozone",
        POSITIVE,
    ),
    Quantity("visibility", r"visibility_in_air", r"^vis(ibility)?$", POSITIVE),
    Quantity(
        "discharge",
        r"water_volume_transport_in_river_channel",
        r"discharge|stream_?flow|river_?flow",
        POSITIVE,
    ),
)
MAX_SHARE = 1.5  # a larger share is in percent
NOT_RELATIVE = re.compile(r"specific|absolute|anomal|deviation|tendency|difference")
UNIT_SPELLINGS = {
    "K": ("k", "kelvin"),
    "degC": ("degc", "c", "°c", "deg c", "celsius", "degrees_celsius", "degree_celsius", "deg_c"),
    "degF": ("degf", "f", "°f", "deg f", "fahrenheit", "degrees_fahrenheit", "deg_f"),
    "Pa": ("pa", "pascal"),
    "hPa": ("hpa", "mbar", "mb", "millibar"),
    "%": ("%", "percent"),
    "degree": ("degree", "degrees", "deg", "°", "degree_true", "degrees_true"),
    "m s-1": ("m s-1", "m/s", "m s**-1", "m s^-1", "ms-1", "m.s-1", "meter/second"),
    "": ("", "unknown", "-"),
}
DIRECTION = re.compile(r".*(from|to)_direction.*|.*direction_of_.*|.*_from_direction")
DIRECTION_NAME = re.compile(r"(^|_)dir(ection)?($|_|\d)|winddir|direction$|^wd\d*$|^dd$|^mwd$")


def quantity_of(channel: str, unit: str = "", standard_name: str = "") -> str:
    """The physical quantity that a standard name, a channel's name or its unit suggests; else ''.

    Args:
        channel: its name.
        unit: its unit; "" is unknown.
        standard_name: of the CF conventions; it takes precedence over the channel's name.

    Example:
        >>> quantity_of("t2m"), quantity_of("x", standard_name="relative_humidity")
        ('temperature', 'humidity')
    """
    quantity = _quantity(channel, standard_name)
    if quantity is not None:
        return quantity.name
    relative = NOT_RELATIVE.search(channel.lower()) is None
    return "temperature" if relative and standard_unit(unit) in ("K", "degC", "degF") else ""


def known_limits(channel: str, unit: str, standard_name: str = "", largest: float = 0.0) -> Bounds:
    """The limits of the quantity in this unit; (None, None) if nothing is known.

    Args:
        channel: its name.
        unit: its unit; shares without one are in percent if the `largest` value suggests it.
        standard_name: its CF standard name.
        largest: of the values.

    Example:
        >>> known_limits("wind_speed", "m s-1"), known_limits("rh", "%")
        ((0.0, None), (0.0, 100.0))
    """
    quantity = _quantity(channel, standard_name)
    if quantity is None:
        return None, None
    limits, unit = quantity.limits, standard_unit(unit)
    if unit in ("", "1") and largest > MAX_SHARE and "%" in limits:
        unit = "%"
    return limits.get(unit, limits.get("*", (None, None)))


def _quantity(channel: str, standard_name: str) -> Quantity | None:
    """By the standard name if there is one, else by the channel's name."""
    text = (standard_name or channel).lower()
    if NOT_RELATIVE.search(text) or is_direction(channel, standard_name):
        return None
    for quantity in QUANTITIES:
        if standard_name:
            if re.fullmatch(quantity.standard_name, text):
                return quantity
        elif re.search(quantity.channel, text):
            return quantity
    return None


def standard_unit(unit: str) -> str:
    """The unit in the spelling of UNIT_SPELLINGS.

    Args:
        unit: in any common spelling.
    """
    lower = unit.strip().lower()
    return next((ours for ours, others in UNIT_SPELLINGS.items() if lower in others), unit)


def same_unit(one: str, other: str) -> bool:
    """Whether two units do not contradict each other: an unknown unit ("") may be any.

    Args:
        one: units in any spelling.
        other: units in any spelling.
    """
    one, other = standard_unit(one), standard_unit(other)
    return one == other or "" in (one, other)


def is_direction(channel: str, standard_name: str = "") -> bool:
    """Whether the names are those of a direction, such as that of the wind.

    Args:
        channel: its name.
        standard_name: of the CF conventions; it takes precedence over the channel's name.

    Example:
        >>> is_direction("wind_direction"), is_direction("directness")
        (True, False)
    """
    if standard_name:
        return DIRECTION.fullmatch(standard_name.lower()) is not None
    return DIRECTION_NAME.search(channel.lower()) is not None


def is_angle(channel: str, unit: str, standard_name: str, low: float, high: float) -> bool:
    """Whether values are directions in degrees: by their names, unit and extremes.

    0 and 360 degrees are the same direction, so that errors and means of such numbers mislead.

    Args:
        channel: its name.
        unit: its unit; "" is unknown.
        standard_name: of the CF conventions.
        low: the smallest and the largest value.
        high: the smallest and the largest value.
    """
    degrees = standard_unit(unit) in ("degree", "")
    full_circle = low >= -180.5 and high <= 360.5 and high - low > 180.0
    return is_direction(channel, standard_name) and degrees and full_circle


def parse_range(text: str) -> Bounds:
    """'LOW:HIGH' as two numbers; None for an empty end.

    Args:
        text: two numbers; either may be absent.

    Raises:
        ValueError: it is not of this form, or the ends are not finite and in order.

    Example:
        >>> parse_range("0:"), parse_range("0:100")
        ((0.0, None), (0.0, 100.0))
    """
    low, colon, high = (part.strip() for part in text.partition(":"))
    if not colon:
        raise ValueError("there is no ':'")
    ends = [float(end) for end in (low, high) if end]
    if not all(map(math.isfinite, ends)) or ends != sorted(set(ends)):
        raise ValueError("the ends are not finite numbers in order")
    return float(low) if low else None, float(high) if high else None


def declared_bounds(channels: Sequence[str], bounds: Mapping[str, str]) -> list[Bounds]:
    """Declared bounds in the order of the channels; None where an end is not declared.

    Args:
        channels: names of the channels.
        bounds: "LOW:HIGH" by channel; an empty end follows from the training data.

    Raises:
        UsageError: there is no such channel, or bounds are not of that form.
    """
    for name, text in bounds.items():
        if name not in channels:
            raise unknown_name("channel in bounds", name, channels)
        try:
            parse_range(text)
        except ValueError as error:
            raise UsageError(
                f"Bounds '{name}={text}' are not NAME=LOW:HIGH ({error}); write wind_speed=0: or "
                "humidity=0:100."
            ) from None
    return [parse_range(bounds.get(name, ":")) for name in channels]
