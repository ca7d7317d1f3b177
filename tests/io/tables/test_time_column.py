"""Times in tables: every notation of the same time, and no shift without notice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stonet.errors import DataError, UsageError
from stonet.io.read import read

HOUR = 3600 * 10**9


def times_of(texts, column="time", **options) -> list[str]:
    """The times of a table of one station, as they are read."""
    columns = texts if isinstance(texts, dict) else {column: list(texts)}
    plane = options.pop("plane", False)
    place = {"x": 1.0, "y": 2.0} if plane else {"lat": 1.0, "lon": 2.0}
    length = len(next(iter(columns.values())))
    frame = pd.DataFrame({"station": "a", **columns, **place, "v": np.arange(length) + 0.5})
    field = read(frame, **options)
    assert field.calendar or plane or "(" in column
    order = np.argsort(field.values[:, 0, 0], kind="stable")
    return [str(np.datetime64(int(t), "ns").astype("M8[s]")) for t in field.times[order]]


TIMES = ["2019-03-14T22:00:00", "2019-03-15T00:00:00", "2019-03-15T13:30:00"]


@pytest.mark.parametrize(
    "texts",
    [
        ["2019-03-14T22:00Z", "2019-03-15T00:00Z", "2019-03-15T13:30Z"],
        ["2019-03-15T00:00+02:00", "2019-03-14T19:00-05:00", "2019-03-15T19:00:00+0530"],
        ["2019-03-14 22:00:00+00", "2019-03-15 00:00:00 UTC", "2019-03-15 13:30:00.000Z"],
        ["2019/03/14 22:00", "2019/03/15 00:00", "2019/03/15 13:30"],
        ["2019-3-14 22:00", "2019-3-15 0:00", "2019-3-15 13:30"],
        ["14.03.2019 22:00", "14.03.2019 24:00", "15.03.2019 13:30"],
        ["2019-03-14 22:00", "2019-03-14 24:00:00", "2019-03-15 13:30:00"],
        ["14/03/2019 22:00", "15/03/2019 00:00", "15/03/2019 13:30"],
        ["03/14/2019 22:00:00", "03/15/2019 0:00:00", "03/15/2019 13:30:00"],
        ["3/14/19 10:00 PM", "3/15/19 12:00 AM", "3/15/19 1:30PM"],
        ["14-Mar-2019 22:00", "15-Mar-2019 00:00", "15-Mar-2019 13:30"],
        ["20190314T2200", "20190315T0000", "20190315T1330"],
        [201903142200, 201903150000, 201903151330],
        [1552600800, 1552608000, 1552656600],
        [1552600800000, 1552608000000, 1552656600000],
        ["1552600800.0", "1552608000.0", "1552656600.0"],
        pd.to_datetime(TIMES),
        pd.to_datetime(TIMES).tz_localize("UTC").tz_convert("Asia/Kolkata"),
        [pd.Timestamp(m).to_pydatetime().replace(tzinfo=UTC) for m in TIMES],
    ],
    ids=lambda texts: str(texts[0]),
)
def test_notations_of_the_same_times_agree(texts):
    assert times_of(texts) == TIMES


@pytest.mark.parametrize(
    "columns",
    [
        {"date": ["2019-03-14", "2019-03-15", "2019-03-15"], "time": ["22:00", "00:00", "13:30"]},
        {"Date": ["14/03/2019", "14/03/2019", "15/03/2019"], "Time": ["22.00.00", "24.00.00",
                                                                      "13.30.00"]},
        {"date": [20190314, 20190315, 20190315], "hhmm": [2200, 0, 1330]},
        {"date": ["2019-03-14"] + ["2019-03-15"] * 2, "hour": [22, 0, 13], "minute": [0, 0, 30]},
        {"year": [2019] * 3, "month": [3] * 3, "day": [14, 15, 15], "hour": [22, 0, 13],
         "minute": [0, 0, 30]},
        {"YEAR": [2019] * 3, "MO": [3] * 3, "DY": [14, 14, 15],
         "time": ["22:00", "24:00", "13:30"]},
    ],
    ids=lambda columns: "-".join(columns),
)  # fmt: skip
def test_times_in_several_columns_are_combined(columns):
    assert times_of(columns) == TIMES


def test_days_months_and_years_start_in_utc():
    days = ["2019-03-14T00:00:00", "2019-03-15T00:00:00"]
    for zone in (None, "Asia/Tokyo"):  # a date has no time of day that a zone could shift
        assert times_of(["2019-03-14", "2019-03-15"], timezone=zone) == days
        assert times_of([20190314, 20190315], timezone=zone) == days
    assert times_of(["2019-03", "2019-04"]) == ["2019-03-01T00:00:00", "2019-04-01T00:00:00"]
    assert times_of([2018, 2019], "year") == ["2018-01-01T00:00:00", "2019-01-01T00:00:00"]
    assert times_of([2019031400, 2019031422])[1] == "2019-03-14T22:00:00"


def test_times_without_a_zone_are_read_as_utc_with_a_note():
    frame = pd.DataFrame({"time": ["2019-03-14 22:00"], "lat": 1.0, "lon": 2.0, "v": 1.0})
    assert "read as UTC" in str(read(frame).notes)
    assert not read(frame, timezone="UTC").notes
    assert not read(frame.rename(columns={"time": "time (UTC)"})).notes
    assert not read(frame.rename(columns={"time": "datetime_utc"})).notes
    aware = frame.assign(time="2019-03-14 22:00+01:00")
    assert read(aware, timezone="Asia/Tokyo").times == read(aware).times  # has its offset
    local = read(frame, timezone="Asia/Tokyo").times
    assert (
        read(frame).times - local
        == 9 * HOUR
        == read(frame).times - read(frame, timezone="+09:00").times
    )


def test_elapsed_seconds_have_no_calendar():
    plane = times_of([0, 0.5, 7200], plane=True)
    assert plane == ["1970-01-01T00:00:00", "1970-01-01T00:00:00", "1970-01-01T02:00:00"]
    hours = times_of([0, 1, 24], "time (h)")
    assert hours[1:] == ["1970-01-01T01:00:00", "1970-01-02T00:00:00"]
    with pytest.raises(DataError, match=r"'time' holds bare numbers \(0, \.\.\.\)"):
        times_of([0, 1, 2])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["03/04/2019", "05/04/2019"], "may have the month or the day first"),
        (["03/14/2019", "14/03/2019"], "dates with the month first .*14/2019.* the day first"),
        (["2019-03-14", "soon"], "'soon' in row 1 is not a time; expected e.g. 2019-03-15T06:00Z"),
        (["2019-02-29T00:00"], "'2019-02-29T00:00' in row 0 is not a time"),
        (["2019-03-14T25:00"], "not a time"),
        (["0001-01-01T00:00"], "not a time"),
        (["14.13.2019"], "not a time"),
        (["12:30", "12:40"], "not a time"),
        (["2019-03-14", None], "row 1 has no time"),
    ],
)
def test_invalid_times_are_refused_with_their_row(texts, message):
    with pytest.raises(DataError, match=message):
        times_of(texts)


def test_an_impossible_date_in_parts_is_refused():
    with pytest.raises(DataError, match="year 2019, month 2, day 29 in row 1 is not a time"):
        times_of({"year": [2019, 2019], "month": [2, 2], "day": [28, 29]})
    with pytest.raises(DataError, match="Time '25:00' in row 0 is not a time"):
        times_of({"Date": ["2019-03-14"], "Time": ["25:00"]})


def test_an_unknown_zone_is_refused():
    for zone in ("Mars/Base", "../../etc/passwd", "", "+99:00"):
        with pytest.raises(UsageError, match="Unknown time zone"):
            times_of(["2019-03-14 22:00"], timezone=zone)


@settings(max_examples=10)
@given(
    st.lists(
        st.tuples(
            st.datetimes(datetime(1900, 1, 1), datetime(2190, 1, 1)),
            st.integers(-14 * 60, 14 * 60),
        ),
        min_size=1,
        max_size=50,
        unique_by=lambda pair: pair[0].replace(microsecond=0),
    )
)
def test_offsets_are_subtracted_exactly(pairs):
    pairs = sorted((time.replace(microsecond=0), minutes) for time, minutes in pairs)
    texts = []
    for time, minutes in pairs:
        sign, size = "-" if minutes < 0 else "+", abs(minutes)
        local = time + timedelta(minutes=minutes)
        texts.append(f"{local.isoformat()}{sign}{size // 60:02d}:{size % 60:02d}")
    assert times_of(texts) == [time.isoformat() for time, _ in pairs]


# Daylight saving time


ZONES = (
    "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Asia/Beirut",
)  # fmt: skip


def transitions(zone: ZoneInfo) -> list[tuple[datetime, int]]:
    """Times (UTC) from 2018 to 2022 at which the offset changes, and by how many minutes."""
    changes = []
    hour = datetime(2018, 1, 1, tzinfo=UTC)
    offset = hour.astimezone(zone).utcoffset()
    while hour.year < 2023:
        hour += timedelta(hours=1)
        now = hour.astimezone(zone).utcoffset()
        if now != offset:
            changes.append((hour, int((now - offset).total_seconds()) // 60))
            offset = now
    return changes


@pytest.mark.parametrize("name", ZONES)
def test_local_hours_that_occur_twice_or_never_are_refused(name):
    zone = ZoneInfo(name)
    changes = transitions(zone)
    assert len(changes) == 10  # two each year
    for time, minutes in changes:
        utc = [time + timedelta(minutes=15 * i) for i in range(-96, 97)]
        local = [t.astimezone(zone).replace(tzinfo=None) for t in utc]
        once = [i for i, wall in enumerate(local) if local.count(wall) == 1]
        texts = [local[i].isoformat(" ") for i in once]
        expected = [utc[i].replace(tzinfo=None).isoformat() for i in once]
        assert times_of(texts, timezone=name) == expected
        twice = sorted({wall for wall in local if local.count(wall) > 1})
        days = {wall.date() for wall in local}
        every = (datetime.combine(day, datetime.min.time()) for day in days)
        walls = {start + timedelta(minutes=15 * i) for start in every for i in range(96)}
        low, high = min(local), max(local)
        never = sorted(wall for wall in walls - set(local) if low < wall < high)
        assert len(twice) == max(-minutes, 0) // 15
        assert len(never) == max(minutes, 0) // 15
        wrong = [(wall, "occurs twice") for wall in {*twice[:1], *twice[-1:]}]
        wrong += [(wall, "does not exist") for wall in {*never[:1], *never[-1:]}]
        for wall, what in wrong:
            with pytest.raises(DataError, match=rf"{what} in {name}.* \(row 3\)"):
                times_of([*texts[:3], wall.isoformat(" "), *texts[3:]], timezone=name)


def test_only_the_order_of_month_and_day_that_fits_must_exist_in_the_zone():
    texts = ["03/10/2019 02:30", "13/10/2019 02:30"]  # as March 10, New York has no 02:30
    times = times_of(texts, timezone="America/New_York")
    assert times == ["2019-10-03T06:30:00", "2019-10-13T06:30:00"]
