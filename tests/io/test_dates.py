"""Dates in ISO format or as digits alone stand for the period that is written."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stonet.errors import UsageError
from stonet.io.dates import parse_date, time_bounds

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
