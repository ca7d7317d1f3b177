"""Descriptions are short whatever the size, and their HTML holds no foreign markup."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from helpers.small import small_dataset, small_field

from stonet.data.field import Dataset, Field
from stonet.data.geometry import Points

HOSTILE = "<img src=x onerror=alert(1)>'\"&\n</table><script>"


def many(stations: int = 3000, channels: int = 40, name: str = "s") -> Field:
    points = Points(
        np.random.default_rng(0).uniform(-80, 80, (stations, 2)),
        "sphere",
        tuple(f"{name}{i}" for i in range(stations)),
    )
    values = np.ones((3, stations, channels), np.float32)
    names = tuple(f"{name}{i}" for i in range(channels))
    return Field(values, np.arange(3), points, names, units=(name,) * channels)


class Tags(HTMLParser):
    """The tags and the text of a document."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_field_states_its_shape_period_extent_channels_and_share_missing() -> None:
    values = np.ones((48, 2, 2), np.float32)
    values[:12, 0, 0] = np.nan
    times = np.arange("2019-03-01", "2019-03-03", dtype="datetime64[h]").astype("datetime64[ns]")
    points = Points(np.array([[46.9, 7.4], [47.5, 7.6]]), "sphere", ("Bern", "Basel"))
    field = Field(values, times.astype(np.int64), points, ("t2m", "rh"), units=("degC", "1"))
    text = repr(field)
    for part in (
        "48 times x 2 stations x 2 channels",
        "2019-03-01 00:00 to 2019-03-02 23:00 UTC, every 1 h",
        "sphere, lat 46.9 to 47.5, lon 7.4 to 7.6",
        "t2m (degC), rh",
        "6.2 %",
    ):
        assert part in text
    assert "Forecast" in repr(replace(field, reference_time=0))


def test_gaps_and_odd_times_are_named() -> None:
    field = small_field(frames=6)
    irregular = Field.trusted(**(vars(field) | {"times": field.times[[0, 1, 2, 3, 4, 5]] * 1}))
    assert "every 1 h" in repr(irregular)
    shifted = field.times.copy()
    shifted[-1] += 1
    assert "mostly every 1 h" in repr(Field.trusted(**(vars(field) | {"times": shifted})))
    single = repr(field.between(0, 1))
    assert "every" not in single and "2026-03-01 00:00" in single


def test_times_without_a_calendar_are_durations() -> None:
    field = small_field(frames=11)
    plain = Field(field.values, 4_000_000 * np.arange(11), field.points, calendar=False)
    assert "0 s to 40 ms, every 4 ms" in repr(plain)


def test_a_data_set_states_its_episodes_and_held_out_points() -> None:
    assert "Dataset 'small': 1 episode, 120 times x 20 stations" in repr(small_dataset(4))
    assert "4 of 20 stations" in repr(small_dataset(4))
    late = replace(small_field(), times=small_field().times + 10**15)
    assert "2 episodes, 240 times" in repr(Dataset((late, small_field())))
    assert "2026-03-01 00:00 to" in repr(Dataset((late, small_field())))


@pytest.mark.parametrize("name", ["s", HOSTILE, "x" * 10_000])
def test_descriptions_are_short_whatever_the_size(name: str) -> None:
    field = many(name=name)
    for described in (field, Dataset((field,), name * 3), field.points):
        lines = repr(described).splitlines()
        assert len(lines) <= 6 and max(map(len, lines)) <= 90
        assert len(described._repr_html_()) < 3000


def test_names_cannot_inject_html() -> None:
    field = many(stations=3, channels=2, name=HOSTILE)
    for described in (field, Dataset((field,), HOSTILE), field.points):
        parsed = Tags(described._repr_html_())
        assert parsed.tags == {"table", "caption", "tr", "th", "td"}
        assert "<img src" in parsed.text  # as text


def test_the_share_missing_of_a_large_field_is_estimated_from_some_frames() -> None:
    shape = (400, 1000, 100)
    field = many(stations=1000, channels=100)
    mask = np.broadcast_to(np.arange(1000)[:, None] % 4 > 0, shape)  # takes no memory
    parts = {"values": np.broadcast_to(np.float32(1), shape), "mask": mask}
    parts["times"] = np.arange(400)
    large = Field.trusted(**(vars(field) | parts))
    assert "about 25 %" in repr(large)
