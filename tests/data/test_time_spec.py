"""TimeSpec: exact arithmetic in int64, calendar features, durations in steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stonet.data.durations import DAY, SECOND, UNITS, YEAR, in_steps, parse_duration
from stonet.data.time_spec import TimeSpec
from stonet.errors import UsageError

HOUR = 3600 * SECOND
HOURLY = TimeSpec(step=HOUR, past=12, horizon=12, calendar=True)
CENTURY = st.integers(-50 * YEAR, 100 * YEAR)


@given(CENTURY)
def test_the_time_of_day_is_exact(nanoseconds):
    """Seconds since 1970 in float32 would be off by a minute; ours by a millionth of a day."""
    year, day = HOURLY.calendar_features(np.array([nanoseconds]))[0].astype(np.float64)
    assert day == pytest.approx((nanoseconds % DAY) / DAY, abs=1e-6)
    assert year == pytest.approx((nanoseconds % YEAR) / YEAR, abs=1e-6)


def test_float32_seconds_would_be_inexact():
    time = int(np.datetime64("2024-07-01T12:34:56", "ns").astype(np.int64))
    rounded = int(np.float32(time / SECOND)) * SECOND
    assert abs(rounded - time) / DAY > 1e-6
    assert HOURLY.calendar_features(np.array([time]))[0, 1] * 24 * 3600 == pytest.approx(
        45296, abs=5e-3
    )


@given(CENTURY, st.integers(-1000, 1000))
def test_features_repeat_with_their_periods(nanoseconds, turns):
    times = np.array([nanoseconds, nanoseconds + turns * DAY])
    day = HOURLY.calendar_features(times)[:, 1]
    assert day[0] == day[1]
    assert np.ptp(HOURLY.hour(times)) == 0


@pytest.mark.parametrize(
    ("step", "calendar", "features", "daily"),
    [
        (HOUR, True, 2, True),
        (HOUR, False, 0, False),
        (12 * HOUR, True, 2, False),
        (DAY, True, 1, False),
    ],
)
def test_features_are_the_cycles_that_the_data_resolve(step, calendar, features, daily):
    time_spec = TimeSpec(step, 1, 1, calendar)
    times = np.arange(48).reshape(2, 24) * HOUR
    assert (
        time_spec.calendar_features(times).shape == (2, 24, features) == (2, 24, time_spec.features)
    )
    assert time_spec.daily is daily
    expected = np.tile(np.arange(24), (2, 1)) if daily else np.zeros((2, 24))
    assert np.array_equal(time_spec.hour(times), expected)


def test_hours_are_those_of_the_date():
    dates = np.array(
        ["1969-12-31T23:59:59", "2024-02-29T00:00", "2024-12-31T17:30"], "datetime64[ns]"
    )
    assert HOURLY.hour(dates.astype(np.int64)).tolist() == [23, 0, 17]


@given(st.integers(-(10**4), 10**4), st.sampled_from([SECOND // 200, SECOND, HOUR, DAY]))
def test_multiples_of_the_step_are_exact(number, step):
    assert TimeSpec(step, 1, 1, False).steps(np.array([number * step]))[0] == number


@given(st.sampled_from(sorted(UNITS)), st.integers(0, 1000), st.booleans())
def test_durations_have_the_length_of_their_unit(unit, number, space):
    assert parse_duration(f"{number}{' ' if space else ''}{unit}") == number * UNITS[unit]


def test_durations_add_up():
    assert (
        parse_duration("1h30min")
        == parse_duration("90min")
        == parse_duration(" 1.5 h")
        == 90 * 60 * SECOND
    )
    assert parse_duration("0.005 s") == parse_duration("5ms") == 5_000_000


@pytest.mark.parametrize("text", ["", "12", "h", "12 hours", "-3h", "3h x", "1,5h"])
def test_invalid_durations_are_refused(text):
    with pytest.raises(UsageError, match=rf"'{text}' is not a duration.*e.g. '12h' or '1h30min'"):
        parse_duration(text)


def test_lengths_are_multiples_of_the_step():
    assert in_steps(7, HOUR) == 7
    assert in_steps("1d", HOUR) == 24
    assert in_steps("1h", HOUR + SECOND) == 1  # a time_spec that runs a little slow
    for length, message in (
        ("90min", "5400 s is no whole number of the data's steps of 3600 s"),
        ("10min", "no whole number"),
        ("0h", "no whole number"),
        (0, "0 steps was given; expected at least 1"),
    ):
        with pytest.raises(UsageError, match=message):
            in_steps(length, HOUR)
