"""Field.sel and Field.isel select what numpy selects from the arrays; labels are never guessed."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest
from helpers.small import HOUR, small_field
from hypothesis import given
from hypothesis import strategies as st

from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import UsageError

NAMES = ("Bern", "Basel", "Zürich", "St. Gallen")


def stations() -> Field:
    """Four days of hourly values from 1 March 2026, 00 UTC, at four stations."""
    field = small_field(frames=96, points=4)
    points = Points(field.points.coordinates, "plane", NAMES)
    altitude = np.array([540.0, 260.0, 408.0, 675.0])
    return Field(field.values, field.times, points, ("t2m",), sites={"altitude": altitude})


def without_calendar() -> Field:
    values = np.arange(10, dtype=np.float32)[:, None, None]
    return Field(values, 4_000_000 * np.arange(10), Points(np.zeros((1, 2))), calendar=False)


def hours(field: Field) -> list[int]:
    return ((field.times - stations().times[0]) // HOUR).tolist()


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("2026-03-02", range(24, 48)),
        ("2026-03", range(96)),
        ("2026-03-02T05", [29]),
        ("2026-03-02T05:00", [29]),
        ("20260302", range(24, 48)),
        (date(2026, 3, 2), range(24, 48)),
        (datetime(2026, 3, 2, 5), [29]),
        (datetime(2026, 3, 2, 5, tzinfo=UTC), [29]),
        (datetime(2026, 3, 2, 5, tzinfo=timezone(timedelta(hours=2))), [27]),
        (np.datetime64("2026-03-02T05"), [29]),
        (pd.Timestamp("2026-03-02 05:00"), [29]),
        (pd.Timestamp("2026-03-02 05:00", tz="Europe/Zurich"), [28]),
        (int(stations().times[7]), [7]),
        (stations().times[7], [7]),
        (["2026-03-02T05", "2026-03-01T01"], [1, 29]),
        (pd.DatetimeIndex(["2026-03-01 01:00", "2026-03-01 02:00"]), [1, 2]),
        (stations().datetimes[[3, 5]], [3, 5]),
        (slice("2026-03-02", "2026-03-02"), range(24, 48)),
        (slice("2026-03-04T22", None), [94, 95]),
        (slice(None, datetime(2026, 3, 1, 2)), [0, 1, 2]),
        (slice(None, None, 40), [0, 40, 80]),
        (slice("2025", "2026-03-01T00:30"), [0]),
    ],
)
def test_times_are_selected_by_label(label: object, expected: object) -> None:
    assert hours(stations().sel(time=label)) == list(expected)  # type: ignore[arg-type, call-overload]


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("Basel", [1]),
        (["Zürich", "Bern"], [2, 0]),
        (("Bern",), [0]),
        (np.array(["Zürich", "Bern"]), [2, 0]),
        (pd.Index(["St. Gallen"]), [3]),
        (slice("Basel", "Zürich"), [1, 2]),
        (slice("Basel", None), [1, 2, 3]),
        (slice(None, None, 2), [0, 2]),
    ],
)
def test_stations_are_selected_by_name(label: object, expected: list[int]) -> None:
    field = stations()
    chosen = field.sel(station=label)  # type: ignore[arg-type]
    assert chosen.points == field.points.take(np.array(expected))
    np.testing.assert_array_equal(chosen.values, field.values[:, expected])
    np.testing.assert_array_equal(chosen.observed, field.observed[:, expected])
    np.testing.assert_array_equal(chosen.sites["altitude"], field.sites["altitude"][expected])


def test_both_axes_stay_when_one_element_is_selected() -> None:
    field = stations()
    chosen = field.sel(time="2026-03-02T05:00", station="Bern")
    assert chosen.values.shape == (1, 1, 1)
    np.testing.assert_array_equal(chosen.values[0, 0], field.values[29, 0])


@pytest.mark.parametrize("names", ["u2", "u1", ["u2", "u0"], ("u0", "u1", "u2")])
def test_channels_are_selected_by_name(names: str | list[str]) -> None:
    base = small_field()
    values = base.values + np.arange(3, dtype=np.float32)
    field = Field(values, base.times, base.points, ("u0", "u1", "u2"), units=("m", "s", "kg"))
    chosen = field.sel(channel=names)
    expected = [names] if isinstance(names, str) else list(names)
    index = [field.channels.index(name) for name in expected]
    assert chosen.channels == tuple(expected)
    assert chosen.units == tuple(field.units[i] for i in index)
    np.testing.assert_array_equal(chosen.values, field.values[..., index])
    np.testing.assert_array_equal(chosen.mask, field.mask[..., index])


def test_without_a_calendar_labels_are_durations_since_zero() -> None:
    field = without_calendar()
    for label in ("8 ms", "0.008s", np.timedelta64(8, "ms"), timedelta(milliseconds=8), 8_000_000):
        assert field.sel(time=label).values.ravel().tolist() == [2]
    assert field.sel(time=slice("8ms", "17ms")).values.ravel().tolist() == [2, 3, 4]
    with pytest.raises(UsageError, match="expected a duration"):
        field.sel(time=np.datetime64("2026-03-01"))


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"time": "2027"}, r"No frame at 2027.*2026-03-01.*2026-03-04T23"),
        ({"time": "2026-03-01T00:30"}, "No frame at"),
        ({"time": slice("2027", None)}, "No frame between 2027 and None"),
        ({"time": []}, "No time was given"),
        ({"time": "soon"}, "not a date"),
        ({"time": timedelta(hours=1)}, "expected a date"),
        ({"time": np.datetime64("NaT")}, "missing"),
        ({"time": np.datetime64("3000")}, "outside the years"),
        ({"channel": "t2n"}, r"Unknown channel.*Did you mean 't2m'"),
        ({"channel": []}, "at least one"),
        ({"channel": ["t2m", "t2m"]}, "each once"),
        ({"station": "Bärn"}, r"No station 'Bärn' among the 4 .*Did you mean 'Bern'\?"),
        ({"station": ["Bern", "7"]}, "No station '7'"),
        ({"station": []}, "leaves no stations"),
        ({"station": slice("Zürich", "Basel")}, "leaves no stations"),
    ],
)
def test_labels_that_name_nothing_are_refused(selection: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        stations().sel(**selection)


def test_a_refusal_among_many_stations_is_short() -> None:
    points = Points(np.zeros((3000, 2)), "plane", tuple(f"S{i:04}" for i in range(3000)))
    field = Field(np.zeros((1, 3000, 1), np.float32), np.zeros(1, np.int64), points)
    with pytest.raises(UsageError) as error:
        field.sel(station="S3O00")
    assert len(str(error.value)) < 200


@given(
    st.one_of(st.integers(-96, 95), st.slices(96)),
    st.one_of(st.integers(-4, 3), st.slices(4), st.permutations(range(4))),
)
def test_positions_select_as_in_numpy(time: object, station: object) -> None:
    field = stations()
    frames, nodes = (np.atleast_1d(np.arange(n)[i]) for n, i in ((96, time), (4, station)))
    if not len(frames) or not len(nodes) or (np.diff(frames) <= 0).any():
        with pytest.raises(UsageError):
            field.isel(time=time, station=station)  # type: ignore[arg-type]
        return
    chosen = field.isel(time=time, station=station)  # type: ignore[arg-type]
    np.testing.assert_array_equal(chosen.values, field.values[frames][:, nodes])
    np.testing.assert_array_equal(chosen.times, field.times[frames])
    assert chosen.points == field.points.take(nodes)


def test_a_boolean_array_selects_positions() -> None:
    field = stations()
    warm = np.nanmean(field.values[..., 0], axis=1) > 10
    assert field.isel(time=warm).times.tolist() == field.times[warm].tolist()


def test_positions_out_of_range_are_refused() -> None:
    with pytest.raises(UsageError, match=r"times of 0\.\.95"):
        stations().isel(time=96)
    with pytest.raises(UsageError, match="increasing order"):
        stations().isel(time=[3, 3])


def test_consecutive_frames_are_views() -> None:
    field = stations()
    assert np.shares_memory(field.sel(time="2026-03-02").values, field.values)
    assert np.shares_memory(field.isel(time=slice(3, 9)).values, field.values)
