"""What the service tells of model and observations, and how it takes new ones."""

from __future__ import annotations

import numpy as np
import pytest
from fastapi.testclient import TestClient
from helpers.served import LIMITS, QUANTILES, Served, make_client, posted, rows, same

from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.inference.stream import Stream
from stonet.serving.about import decimals, region
from stonet.serving.observed import last_observations
from stonet.serving.service import Run, Service
from stonet.serving.times import label, parse

HOUR = 3600 * 10**9


def shortened(served: Served, frames: int) -> TestClient:
    part = Served(served.folder, served.model, served.data.between(0, frames))
    return make_client(part)


def test_the_model_describes_itself(client: TestClient, served: Served) -> None:
    found, data = client.get("/v1/model").json(), served.data
    assert found["kind"] == "sphere" and [axis["name"] for axis in found["axes"]] == ["lat", "lon"]
    assert [channel["name"] for channel in found["channels"]] == list(data.channels)
    assert found["period"] == {
        "start": label(data.times[0], True),
        "end": label(data.times[-1], True),
    }
    assert found["issue_times"]["first"] == label(data.times[7], True)
    assert found["issue_times"]["count"] == len(data.times) - 7
    assert found["horizon"]["leads_seconds"] == [3600.0, 7200.0, 10800.0, 14400.0]
    assert found["limits"]["sites"] == LIMITS.sites and found["quantiles_available"]
    south, north = found["region"]["lat"]
    assert (south <= data.points.coordinates[:, 0]).all() and (
        data.points.coordinates[:, 0] <= north
    ).all()
    for channel, low, high in zip(
        found["channels"],
        served.model.trained.scaler.low,
        served.model.trained.scaler.high,
        strict=True,
    ):
        assert channel["bounds"] == [low, high]


def test_stations_have_the_values_of_a_time(client: TestClient, served: Served) -> None:
    for query, frame in (("", -1), (f"?time={label(served.data.times[30], True)}", 30)):
        found = client.get(f"/v1/stations{query}").json()
        assert found["time"] == label(served.data.times[frame], True)
        for c, name in enumerate(served.data.channels):
            values = np.array([s["values"][name] for s in found["stations"]], dtype=np.float64)
            np.testing.assert_array_equal(
                values.astype(np.float32), served.data.values[frame, :, c]
            )


def test_last_observations_agree_with_a_loop(served: Served) -> None:
    rng = np.random.default_rng(0)
    mask = rng.random(served.data.values.shape) < 0.02
    mask[:, 0] = False
    field = Field(served.data.values, served.data.times, served.data.points, ("u0", "u1"), mask)
    for place in (0, 3, 130, len(field.times) - 1):
        expected = [
            max((t for t in range(place + 1) if field.observed[t, n].any()), default=-1)
            for n in range(len(field.points))
        ]
        assert last_observations(field, place).tolist() == expected


def test_a_series_is_a_slice_of_the_data(client: TestClient, served: Served) -> None:
    names, issued = served.data.points.names, label(served.data.times[100], True)
    query = {"stations": [names[3], f"{names[1]},{names[2]}"], "hours": 5, "issue_time": issued}
    found = client.get("/v1/series", params=query).json()
    assert [one["id"] for one in found["stations"]] == [names[3], names[1], names[2]]
    assert found["times"] == [label(t, True) for t in served.data.times[95:101]]
    for one, node in zip(found["stations"], (3, 1, 2), strict=True):
        values = np.array(one["values"]["u1"], dtype=np.float64).astype(np.float32)
        np.testing.assert_array_equal(values, served.data.values[95:101, node, 1])


def test_missing_values_are_null(served: Served) -> None:
    values = np.array(served.data.values)
    values[-1, 0] = np.nan
    field = Field(values, served.data.times, served.data.points, ("u0", "u1"), None, ("K", "K"))
    with make_client(Served(served.folder, served.model, field)) as client:
        first = client.get("/v1/stations").json()["stations"][0]
    assert first["values"] == {"u0": None, "u1": None}
    assert first["last_observation"] == label(field.times[-2], True)


def test_forecasts_follow_new_observations(served: Served) -> None:
    """One by one, as a stream and as `predict` on the longer data."""
    with shortened(served, 480) as client:
        stream = Stream(served.model.trained, served.data.points, served.model._calibration)
        for frame in range(480):
            stream.observe(int(served.data.times[frame]), served.data.values[frame])
        for frame in range(480, 484):
            answer = posted(client, "/v1/observations", **rows(served.data, frame, frame + 1))
            stream.observe(int(served.data.times[frame]), served.data.values[frame])
            assert answer["issue_time"] == label(served.data.times[frame], True)
            found = posted(client, quantiles=QUANTILES)
            so_far = served.data.between(0, frame + 1)
            same(found, served.model.predict(so_far, quantiles=QUANTILES))
            expected = stream.quantiles(QUANTILES).values[0, ..., 1]
            low = np.array(found["channels"]["u1"]["quantiles"]["0.05"]).T
            np.testing.assert_allclose(low, expected, atol=2e-4)
        assert client.get("/health/ready").json()["issue_time"] == answer["issue_time"]


def test_intervals_adapt_to_errors(served: Served) -> None:
    """Values unlike the forecasts widen the intervals that follow."""
    frames = 480
    with shortened(served, frames) as client:
        before = width(posted(client, quantiles=QUANTILES))
        draw = np.random.default_rng(0)
        for start in (frames - 60, frames - 30):
            new = rows(served.data, start, start + 30)
            for name, values in new["values"].items():
                noise = draw.normal(size=np.shape(values))
                new["values"][name] = (np.array(values, dtype=float) + noise).tolist()
            posted(client, "/v1/observations", **new)
        assert width(posted(client, quantiles=QUANTILES)) > 1.2 * before


def width(document: dict) -> float:
    ends = document["channels"]["u0"]["quantiles"]
    return float(np.nanmean(np.array(ends["0.95"]) - np.array(ends["0.05"])))


def test_null_leaves_what_is_known_and_late_values_are_inserted(served: Served) -> None:
    with shortened(served, 480) as client:
        name, last = served.data.points.names[0], int(served.data.times[479])
        between = label(last - HOUR // 2, True)
        new = {
            "times": [between, label(last, True)],
            "stations": [name],
            "values": {"u0": [[0.5], [None]]},
        }
        assert posted(client, "/v1/observations", **new)["accepted"] == 1
        found = client.get(f"/v1/stations?time={between}").json()
        assert found["time"] == between and found["stations"][0]["values"] == {
            "u0": 0.5,
            "u1": None,
        }
        latest = client.get("/v1/stations").json()["stations"][0]["values"]["u0"]
        assert np.float32(latest) == served.data.values[479, 0, 0]


def test_refused_observations_change_nothing(fresh: TestClient, served: Served) -> None:
    good = rows(served.data, 499, 500)
    later = label(int(served.data.times[-1]) + HOUR, True)
    huge = [[1e6] * len(good["stations"])]
    before = fresh.get("/v1/stations").json()
    for change in (
        {"times": [later], "values": {"u0": huge, "u1": huge}},
        {"times": ["2031-01-01"]},
        {"times": ["1990-01-01"]},
        {"stations": ["nowhere"] * len(good["stations"])},
        {"stations": [good["stations"][0]] * len(good["stations"])},
        {"values": {"u9": good["values"]["u0"]}},
        {"values": {"u0": [[1.0]]}},
        {"values": {"u0": [[1e300] * len(good["stations"])]}},
        {"values": {"u0": []}},
    ):
        answer = fresh.post("/v1/observations", json=good | change)
        assert answer.status_code == 422, change
        assert len(answer.json()["error"]["message"]) > 30
    assert fresh.get("/v1/stations").json() == before


def test_other_data_keep_what_was_sent_since(served: Served) -> None:
    run, data = Run.load(served.folder), served.data
    service = Service(run, data.between(0, 400), LIMITS)
    from stonet.serving.messages import Observations

    service.observe(Observations(**rows(data, 405, 406)))
    service.replace(data.between(0, 402).take(np.arange(1, len(data.points))))
    field = service.snapshot.field
    assert field.times.tolist() == [*data.times[:402].tolist(), int(data.times[405])]
    np.testing.assert_array_equal(field.values[-1], data.values[405, 1:])
    service.replace(data.between(0, 420))
    assert len(service.snapshot.field.times) == 420
    assert service.issue().time == data.times[419]


@pytest.mark.parametrize("calendar", [True, False])
@pytest.mark.parametrize("time", [0, 1, 10**9, 1_700_000_000 * 10**9 + 500_000_000, 123_456_789])
def test_times_are_read_as_written(time: int, calendar: bool) -> None:
    assert parse(label(time, calendar), calendar) == time


def test_the_region_crosses_the_date_line() -> None:
    found = region(Points(np.array([[0.0, 175.0], [10.0, -175.0]]), "sphere"))
    assert found["lon"][0] < 175.0 and 185.0 < found["lon"][1] < 190.0


def test_a_single_station_has_a_region() -> None:
    for kind in ("sphere", "plane"):
        for low, high in region(Points(np.array([[5.0, 7.0]]), kind)).values():
            assert low < high


def test_decimals_show_a_hundredth_of_the_deviation() -> None:
    assert [decimals(s) for s in (1000.0, 5.0, 0.5, 1e-3, 0.0)] == [0, 2, 3, 5, 2]
