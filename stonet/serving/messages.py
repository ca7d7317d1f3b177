"""The bodies of requests; they are the schemas of /openapi.json, too."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Time = Annotated[str, Field(min_length=1, max_length=64)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Position = tuple[Number, Number]
Quantile = Annotated[float, Field(strict=True, gt=0, lt=1)]
Size = Annotated[int, Field(strict=True, ge=2)]
Matrix = list[list[Number | None]]


class Message(BaseModel):
    """What all bodies have in common: no unknown keys."""

    model_config = ConfigDict(extra="forbid")


class Observations(Message):
    """New values of known stations.

    Args:
        times: increasing.
        stations: ids, as /v1/stations lists them.
        values: by channel, for each time the values of the stations; null where missing.
    """

    times: list[Time] = Field(min_length=1)
    stations: list[Name] = Field(min_length=1)
    values: dict[Name, Matrix] = Field(min_length=1)


class ForecastRequest(Message):
    """Where and when a forecast is wanted.

    Args:
        sites: [lat, lon] or [x, y], or ids of stations; null: all stations.
        names: one for each site.
        times: leads such as "+6h", or dates; null: the leads of the training.
        quantiles: of the forecast distribution, increasing; null: none.
        issue_time: the forecast knows observations up to this time; null: up to the latest.
        observations: further ones that hold for this request only.
    """

    sites: list[Position | Name] | None = Field(None, min_length=1)
    names: list[Name] | None = None
    times: list[Time] | None = Field(None, min_length=1)
    quantiles: list[Quantile] | None = Field(None, min_length=1, max_length=50)
    issue_time: Time | None = None
    observations: Observations | None = None


class Region(Message):
    """A region of the map: ranges of latitude and longitude, or of x and y.

    Args:
        lat: south and north.
        lon: west and east; east may exceed 180 across the date line.
        x: smallest and largest.
        y: smallest and largest.
    """

    lat: Position | None = None
    lon: Position | None = None
    x: Position | None = None
    y: Position | None = None


class FieldRequest(Message):
    """A forecast on a regular grid.

    Args:
        channel: name; null: the first.
        times: leads or dates; null: the leads of the training.
        issue_time: as of a forecast.
        region: null: that of the stations.
        size: numbers of rows and columns.
        quantile: that is shown instead of the forecast.
    """

    channel: Name | None = None
    times: list[Time] | None = Field(None, min_length=1)
    issue_time: Time | None = None
    region: Region | None = None
    size: tuple[Size, Size] = (48, 64)
    quantile: Quantile | None = None


Format = Literal["json", "csv", "netcdf"]
