"""One file of INMET, Brazil's weather service: a station's hours of a year, as published.

Latin-1, `;`, decimal commas; eight lines on the station, then a line of names. Since 2019 missing
values are empty and hours are `0000 UTC`; before, they are -9999 and `00:00`.
"""

from __future__ import annotations

import gzip
import io
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

from stonet.data.durations import UNITS
from stonet.errors import DataError
from stonet.io.archive import read_bounded, read_member

HEADER_LINES = 8
MAX_BYTES = 2**25  # of a file; the real ones have about a megabyte
MISSING = -9990.0  # what is less is missing

# The name and unit of each channel, by the beginning of its column without accents.
COLUMNS: Mapping[str, tuple[str, str]] = {
    "TEMPERATURA DO AR - BULBO SECO": ("air_temperature", "degC"),
    "TEMPERATURA DO PONTO DE ORVALHO": ("dew_point_temperature", "degC"),
    "UMIDADE RELATIVA DO AR": ("relative_humidity", "%"),
    "PRESSAO ATMOSFERICA AO NIVEL DA ESTACAO": ("surface_air_pressure", "hPa"),
    "VENTO, VELOCIDADE HORARIA": ("wind_speed", "m s-1"),
    "VENTO, DIRECAO HORARIA": ("wind_from_direction", "degree"),
    "RADIACAO GLOBAL": ("downwelling_shortwave_energy", "kJ m-2"),
    "PRECIPITACAO TOTAL": ("precipitation_amount", "mm"),
    "VENTO, RAJADA MAXIMA": ("wind_speed_of_gust", "m s-1"),
    "TEMPERATURA MAXIMA NA HORA": ("air_temperature_max", "degC"),
    "TEMPERATURA MINIMA NA HORA": ("air_temperature_min", "degC"),
    "TEMPERATURA ORVALHO MAX": ("dew_point_temperature_max", "degC"),
    "TEMPERATURA ORVALHO MIN": ("dew_point_temperature_min", "degC"),
    "UMIDADE REL. MAX": ("relative_humidity_max", "%"),
    "UMIDADE REL. MIN": ("relative_humidity_min", "%"),
    "PRESSAO ATMOSFERICA MAX": ("surface_air_pressure_max", "hPa"),
    "PRESSAO ATMOSFERICA MIN": ("surface_air_pressure_min", "hPa"),
}
CHANNELS = {name: unit for name, unit in COLUMNS.values()}
USUAL = tuple(CHANNELS)[:8]  # what is read unless others are named


class StationFile(NamedTuple):
    """A file on disk or in an archive.

    Args:
        path: of the file or the archive.
        member: name within the archive; "" for a file.
    """

    path: Path
    member: str = ""

    @property
    def origin(self) -> str:
        """Its name, for messages."""
        return f"{self.path}: {self.member}" if self.member else str(self.path)

    def read(self) -> bytes:
        """Its content."""
        if self.member:
            return read_member(self.path, self.member, MAX_BYTES)
        try:
            with open_plain(self.path) as stream:
                return read_bounded(stream, str(self.path), MAX_BYTES)
        except (OSError, EOFError) as error:
            raise DataError(f"'{self.path}' cannot be read ({error}). Is it complete?") from None


class Heading(NamedTuple):
    """What a file says of its station, and when its record begins and ends.

    Args:
        code: of the station, such as A001.
        lat: in degrees.
        lon: in degrees.
        altitude: in metres; NaN if it is not given.
        first: time of the first row, in nanoseconds since 1970 UTC.
        last: time of the last row.
    """

    code: str
    lat: float
    lon: float
    altitude: float
    first: int
    last: int


def open_plain(path: Path) -> gzip.GzipFile | io.BufferedReader:
    """A file for reading, unpacked if it ends in .gz.

    Args:
        path: of the file.
    """
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb")


def is_station_file(start: bytes) -> bool:
    """Whether a file that begins like this is one of INMET.

    Args:
        start: its first bytes, at least twelve.
    """
    return (
        re.match(rb"(\xef\xbb\xbf)?REGI.{1,4}O ?:;", start, re.IGNORECASE | re.DOTALL) is not None
    )


def read_heading(content: bytes, origin: str) -> Heading:
    """The heading of a file.

    Args:
        content: of the file.
        origin: its name, for messages.

    Raises:
        DataError: it has no station, position or row.
    """
    lines = content.decode("latin-1").splitlines()
    fields = {
        _plain(key).rstrip(": "): value.strip(" ;")
        for key, _, value in (line.partition(";") for line in lines[:HEADER_LINES])
    }
    rows = [line for line in (*lines[HEADER_LINES + 1 :][:1], *lines[:HEADER_LINES:-1]) if line]
    code = next((value for key, value in fields.items() if key.startswith("CODIGO")), "")
    try:
        lat, lon = (_number(fields[name]) for name in ("LATITUDE", "LONGITUDE"))
    except (KeyError, ValueError):
        lat = lon = float("nan")
    if not code or not np.isfinite([lat, lon]).all() or not rows:
        raise DataError(
            f"'{origin}' is not a complete station file of INMET: expected eight lines with "
            "CODIGO, LATITUDE and LONGITUDE, a line of names, and rows. Download it again."
        )
    try:
        altitude = _number(fields.get("ALTITUDE", ""))
    except ValueError:
        altitude = float("nan")
    times = _times(
        [row.split(";")[:2] for row in (rows[0], rows[1] if rows[1:] else rows[0])], origin
    )
    return Heading(code, lat, lon, altitude, int(times.min()), int(times.max()))


def read_rows(
    content: bytes, channels: Sequence[str], origin: str
) -> tuple[Int64[np.ndarray, " row"], Float32[np.ndarray, "row channel"]]:
    """Times and values of a file; NaN where missing, or where the file lacks a column.

    Args:
        content: of the file.
        channels: names of CHANNELS.
        origin: the file's name, for messages.

    Raises:
        DataError: a row cannot be read.
    """
    import pandas as pd

    body = io.BytesIO(content)
    for _ in range(HEADER_LINES):
        body.readline()
    names = [_plain(name) for name in body.readline().decode("latin-1").rstrip("\r\n").split(";")]
    position = {found[0]: n for n, name in enumerate(names) if (found := _channel(name))}
    try:
        table = pd.read_csv(
            body, sep=";", header=None, names=range(len(names)), dtype=str, encoding="latin-1",
            na_filter=False, index_col=False,
        )  # fmt: skip
        values = np.full((len(table), len(channels)), np.nan, dtype=np.float32)
        for number, channel in enumerate(channels):
            if channel in position:
                text = table[position[channel]].str.strip().str.replace(",", ".", regex=False)
                values[:, number] = pd.to_numeric(text.mask(text == ""))
    except (ValueError, TypeError) as error:
        raise DataError(f"'{origin}': a value cannot be read ({error}).") from None
    values[values < MISSING] = np.nan
    return _times(table[[0, 1]].to_numpy(dtype=object), origin), values


def _times(rows: Sequence[Sequence[str]] | np.ndarray, origin: str) -> Int64[np.ndarray, " row"]:
    """Nanoseconds of dates such as 2024/01/01 and hours such as `0000 UTC` or `00:00`."""
    days = [str(row[0]).strip().replace("/", "-") for row in rows]
    digits = {row[1]: re.sub(r"\D", "", str(row[1])) for row in rows}  # of few different hours
    hours = [digits[row[1]] for row in rows]
    try:
        dates = np.array(days, dtype="datetime64[D]").astype("datetime64[ns]").astype(np.int64)
        clock = np.array(hours, dtype=np.int64)
        if not ((clock >= 0) & (clock <= 2359)).all():
            raise ValueError("an hour beyond 2359")
    except ValueError as error:
        raise DataError(f"'{origin}': a time cannot be read ({error}).") from None
    return dates + clock // 100 * UNITS["h"] + clock % 100 * UNITS["min"]


def _channel(name: str) -> tuple[str, str] | None:
    return next((channel for start, channel in COLUMNS.items() if name.startswith(start)), None)


def _plain(text: str) -> str:
    """Upper case without accents."""
    parts = unicodedata.normalize("NFKD", text)
    return "".join(c for c in parts if not unicodedata.combining(c)).upper().strip()


def _number(text: str) -> float:
    return float(text.replace(",", "."))
