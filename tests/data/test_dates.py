"""Times in every form that users have them; a date stands for the period that is written."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import config as shape_checks

from stonet.data.dates import as_list, parse_date, parse_time, time_bounds
from stonet.errors import UsageError

FORMS = ["%Y-%m", "%Y-%m-%d", "%Y-%m-%dT%H", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]


@given(st.datetimes(datetime(1678, 1, 1), datetime(2261, 12, 31)), st.sampled_from(FORMS))
def test_digits_alone_equal_iso_dates(time: datetime, form: str) -> None:
    text = time.strftime(form)
    digits = text.replace("-", "").replace(":", "")
    for same in (digits, digits.replace("T", ""), f" {text}"):
        assert parse_date(same) == parse_date(text)
        assert time_bounds(same, calendar=True) == time_bounds(text, calendar=True)


def test_a_date_stands_for_the_period_that_is_written() -> None:
    lengths = {"2019": 365 * 24, "201903": 31 * 24, "20190315": 24, "2019031506": 1}
    hour = 3600 * 10**9
    for text, hours in lengths.items():
        first, last = time_bounds(text, calendar=True)
        assert last + 1 - first == hours * hour
    assert np.diff(time_bounds("2019-03-15T06:00Z", calendar=True)) == hour // 60 - 1
    assert np.diff(time_bounds("20190315T060000Z", calendar=True)) == 10**9 - 1
    assert time_bounds("3s", calendar=False) == (3 * 10**9,) * 2


@pytest.mark.parametrize("text", ["yesterday", "", "NaT", "201913", "20190230", "2019031524"])
def test_invalid_dates_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=rf"'{text}' is not a date; write e.g. 2019-03-15"):
        time_bounds(text, calendar=True)


@pytest.mark.parametrize(
    "text", ["1677", "2262-01-01", "201", "20190", "2019031", "190001010", f"{2**64 + 2019}", "-5"]
)
def test_dates_beyond_the_range_of_nanoseconds_are_refused(text: str) -> None:
    """numpy reads other numbers of digits as a year, which overflows at 2**64."""
    with pytest.raises(UsageError, match=rf"'{text}' lies outside the years 1678 to 2261"):
        time_bounds(text, calendar=True)


ISSUE = int(np.datetime64("2019-03-15T06:00", "ns").astype(np.int64))
MINUTE = 60 * 10**9


@pytest.mark.parametrize(
    "lead",
    [
        "+90min",
        timedelta(minutes=90),
        np.timedelta64(90, "m"),
        pd.Timedelta("1h30min"),
        "2019-03-15T07:30",
        datetime(2019, 3, 15, 7, 30),
        datetime(2019, 3, 15, 8, 30, tzinfo=timezone(timedelta(hours=1))),
        np.datetime64("2019-03-15T07:30"),
        pd.Timestamp("2019-03-15 07:30"),
        pd.Timestamp("2019-03-15 08:30", tz="Europe/Zurich"),
        ISSUE + 90 * MINUTE,
        np.int64(ISSUE + 90 * MINUTE),
    ],
    ids=repr,
)
def test_a_time_may_be_written_in_many_ways(lead: object) -> None:
    assert parse_time(lead, True, ISSUE) == ISSUE + 90 * MINUTE  # type: ignore[arg-type]


def test_times_are_exact_to_the_nanosecond() -> None:
    for exact in (pd.Timedelta(7, "ns"), np.timedelta64(7, "ns"), "+7ns"):
        assert parse_time(exact, True, ISSUE) == ISSUE + 7
    assert parse_time(pd.Timestamp(ISSUE + 7), True) == ISSUE + 7


def test_one_time_and_several_are_lists_of_times() -> None:
    several = pd.timedelta_range("1h", periods=2, freq="1h")
    for times, count in (("+1h", 1), (several[0], 1), (np.timedelta64(1, "h"), 1), (5, 1),
                         (["+1h", "+2h"], 2), (several, 2), (several.to_numpy(), 2),
                         (date(2019, 3, 1), 1)):  # fmt: skip
        assert len(as_list(times)) == count  # type: ignore[arg-type]


@pytest.mark.parametrize("time", [pd.NaT, np.datetime64("NaT"), np.timedelta64("NaT"), 1.5, None])
def test_invalid_times_are_refused(time: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape_checks, "jaxtyping_disable", True)  # users run without type checks
    with pytest.raises(UsageError):
        parse_time(time, True, ISSUE)  # type: ignore[arg-type]


def test_a_lead_needs_an_issue_time() -> None:
    for lead in ("+1h", timedelta(hours=1), np.timedelta64(1, "h")):
        with pytest.raises(UsageError):
            parse_time(lead, True)  # type: ignore[arg-type]
