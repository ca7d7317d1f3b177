"""Forecasts of the service are those of `predict`, bit by bit."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from fastapi.testclient import TestClient
from helpers.served import ADDRESS, LIMITS, QUANTILES, Served, posted, same
from helpers.shell import Shell

from stonet.data.quantile_field import QuantileField
from stonet.io.write import table
from stonet.serving.app import create_app
from stonet.serving.service import Run, Service
from stonet.serving.times import label

SITES = [[12.5, 40.25], [-3.0, 7.125]]


def test_all_stations(client: TestClient, served: Served) -> None:
    expected = served.model.predict(served.data, quantiles=QUANTILES)
    same(posted(client, quantiles=QUANTILES), expected)


def test_without_quantiles(client: TestClient, served: Served) -> None:
    made = served.model.predict(served.data)
    same(posted(client), QuantileField(made, (), np.zeros((0, *made.values.shape), np.float32)))


def test_sites_between_steps(client: TestClient, served: Served) -> None:
    times = ["+30min", "+90min", "+4h"]
    expected = served.model.predict(served.data, at=SITES, times=times, quantiles=QUANTILES)
    document = posted(client, sites=SITES, times=times, quantiles=QUANTILES)
    same(document, expected)
    sites = expected.field.sites
    for i, site in enumerate(document["sites"]):
        assert site["distance_km"] == site["distance"] == sites["nearest_observation"][i]
        assert site["position"] == SITES[i]


def test_an_earlier_issue_time_knows_nothing_later(client: TestClient, served: Served) -> None:
    so_far = served.data.between(0, 451)
    expected = served.model.predict(so_far, at=SITES, quantiles=QUANTILES)
    time = label(int(served.data.times[450]), True)
    same(posted(client, sites=SITES, quantiles=QUANTILES, issue_time=time), expected)


def test_a_repeated_request_has_the_same_answer(client: TestClient) -> None:
    content = {"sites": SITES, "quantiles": QUANTILES, "times": ["+100min"]}
    assert posted(client, **content) == posted(client, **content)


def test_sites_by_name_or_beside_a_station_have_its_history(
    client: TestClient, served: Served
) -> None:
    name, lat, lon = list(served.data.points)[2]
    found = posted(client, sites=[name, [lat + 1e-4, lon]], names=["one", "two"])
    by_name, beside = found["channels"]["u0"]["values"]
    assert by_name == beside and "'two'" in " ".join(found["notes"])
    assert [site["name"] for site in found["sites"]] == ["one", "two"]
    assert all(s["support"] == "observed" and s["nearest"][0] == name for s in found["sites"])


def test_fresh_observations_hold_for_their_request_only(client: TestClient, served: Served) -> None:
    start, end = 470, len(served.data.times)
    rows = served.data.between(start, end)
    values = np.where(rows.observed, rows.values, 0.5).astype(np.float64) + 0.25
    changed = np.array(served.data.values)
    changed[start:] = values
    data = type(served.data)(
        changed, served.data.times, served.data.points, served.data.channels, None,
        served.data.units,
    )  # fmt: skip
    before = posted(client, quantiles=QUANTILES)
    observations = {
        "times": [label(t, True) for t in rows.times],
        "stations": list(rows.points.names),
        "values": {
            name: values[..., c].astype(np.float32).astype(float).tolist()
            for c, name in enumerate(rows.channels)
        },
    }
    expected = served.model.predict(data, quantiles=QUANTILES)
    same(posted(client, quantiles=QUANTILES, observations=observations), expected)
    assert posted(client, quantiles=QUANTILES) == before


@pytest.mark.parametrize("quantiles", [None, QUANTILES])
def test_files_are_those_of_predict(
    client: TestClient, served: Served, quantiles: list[float] | None
) -> None:
    content = {"sites": SITES, "times": ["+1h", "+2h"], "quantiles": quantiles}
    answers = {f: client.post(f"/v1/forecast?format={f}", json=content) for f in ("csv", "netcdf")}
    for answer in answers.values():
        assert answer.status_code == 200
        assert answer.headers["content-disposition"].startswith("attachment;")
    rows = pd.read_csv(io.StringIO(answers["csv"].text))
    grid = xr.load_dataset(io.BytesIO(answers["netcdf"].content), engine="h5netcdf")
    request = {"at": SITES, "times": ["+1h", "+2h"]}
    if quantiles is None:
        made = served.model.predict(served.data, **request)
        assert len(rows) == len(table(made))
        np.testing.assert_array_equal(grid["u0"].values, made.values[..., 0])
    else:
        levels = sorted([*quantiles, 0.5])
        found = served.model.predict(served.data, **request, quantiles=levels)
        assert sorted(set(rows["quantile"])) == levels
        np.testing.assert_array_equal(grid["u0"].values, found.values[..., 0])


def test_a_file_is_that_of_the_command_line(
    client: TestClient,
    served: Served,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Byte by byte."""
    stonet, out = Shell(capsys, monkeypatch), tmp_path / "forecast.csv"
    at = [word for lat, lon in SITES for word in (f"--at={lat},{lon}",)]
    times = ("--times", "+1h", "--times", "+150min")
    assert stonet("predict", served.folder, *at, *times, "--intervals=50,90", "-o", out).code == 0
    content = {"sites": SITES, "times": ["+1h", "+150min"], "quantiles": QUANTILES}
    assert client.post("/v1/forecast?format=csv", json=content).content == out.read_bytes()


def test_recent_errors_correct_what_is_compared_here(client: TestClient, served: Served) -> None:
    """So that equal forecasts have equal corrections, too."""
    corrected = np.array(posted(client)["channels"]["u0"]["values"]).T
    plain = served.model.predict(served.data, feedback=False).values[..., 0]
    assert np.abs(corrected - plain).max() > 1e-3


def test_a_field_is_the_forecast_at_its_cells(client: TestClient, served: Served) -> None:
    region = {"lat": [-10.0, 20.0], "lon": [170.0, 200.0]}
    content = {"channel": "u1", "times": ["+1h", "+150min"], "region": region, "size": [3, 5]}
    found = posted(client, "/v1/field", **content)
    rows, columns = found["rows"]["values"], found["columns"]["values"]
    assert rows == [15.0, 5.0, -5.0] and columns == [173.0, 179.0, 185.0, 191.0, 197.0]
    places = [[lat, lon] for lat in rows for lon in columns]
    made = served.model.predict(served.data, at=places, times=content["times"], snap=False)
    values = np.array(found["values"], dtype=np.float64).astype(np.float32)
    np.testing.assert_array_equal(values, made.values[..., 1].reshape(2, 3, 5))
    np.testing.assert_allclose(found["range"], [values.min(), values.max()])


def test_a_field_can_show_a_quantile(client: TestClient) -> None:
    low, middle, high = (
        np.array(posted(client, "/v1/field", size=[4, 4], times=["+1h"], quantile=q)["values"])
        for q in (0.1, None, 0.9)
    )
    assert (low <= middle).all() and (middle <= high).all() and (low < high).any()


def test_a_run_without_calibration_has_no_quantiles(served: Served) -> None:
    run = replace(Run.load(served.folder), calibration=None)
    app = create_app(Service(run, served.data, LIMITS))
    with TestClient(app, base_url=ADDRESS) as client:
        assert not client.get("/v1/model").json()["quantiles_available"]
        made = served.model.predict(served.data, at=SITES, feedback=False)
        none = np.zeros((0, *made.values.shape), np.float32)
        same(posted(client, sites=SITES), QuantileField(made, (), none))
        refused = client.post("/v1/forecast", json={"quantiles": [0.1, 0.9]})
        assert refused.status_code == 422 and "calibration" in refused.json()["error"]["message"]
