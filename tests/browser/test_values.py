"""Values on the page are those of `stonet predict`, to the digit shown."""

from __future__ import annotations

from pathlib import Path

import pytest
import xarray as xr
from helpers.browser import Served, csv_rows


def rounded(value: str, like: str) -> str:
    """A value with as many decimals as another."""
    decimals = len(like.partition(".")[2])
    text = f"{float(value):.{decimals}f}"
    return text.lstrip("-") if float(text) == 0 else text


def test_the_curve_is_that_of_predict(visit, europe: Served, tmp_path: Path):
    page = visit(europe)
    page.ask("50.5, 9.25")
    page.page.click("#point-table-box summary")
    head, *rows = page.table("point-table")
    assert head == ["Time", "Lead", "t2m (°C)", "90 % interval", "50 % interval"]
    leads = [row[1] for row in rows]
    assert leads[:4] == ["+15 min", "+30 min", "+45 min", "+1 h"] and len(leads) == 16
    words = [word for lead in leads for word in ("--times", lead.replace(" ", ""))]
    predicted = europe.predicted(tmp_path, "--at", "50.5,9.25", "--intervals", "50,90", *words)
    assert len(predicted) == 5 * len(rows)
    levels = {(row["time"], row["quantile"]): row["t2m"] for row in predicted}
    for row, time in zip(rows, sorted({row["time"] for row in predicted}), strict=True):
        shown = [row[2], *row[3].split(" to "), *row[4].split(" to ")]
        wanted = [levels[time, level] for level in ("0.5", "0.05", "0.95", "0.25", "0.75")]
        assert shown == [rounded(value, row[2]) for value in wanted]


def test_the_reading_follows_the_slider(visit, europe: Served, tmp_path: Path):
    page = visit(europe, "#lead=2")
    page.ask("50.5, 9.25")
    page.page.locator("#time").fill("4")
    (expected,) = europe.predicted(tmp_path, "--at", "50.5,9.25", "--times", "+4h")
    assert page.number("point-value") == rounded(expected["t2m"], page.number("point-value"))
    assert "+4 h" in page.text("point-range")


def test_stations_show_what_predict_gives_them(visit, europe: Served, tmp_path: Path):
    page = visit(europe, "#lead=3")
    page.page.click("#stations-box summary")
    page.page.wait_for_selector("#stations-table tbody tr")
    shown = {row[0]: row[2] for row in page.table("stations-table")[1:]}
    predicted = europe.predicted(tmp_path, "--times", "+3h")
    assert len(shown) == len(predicted) == 40
    for expected in predicted:
        value = shown[expected["station"]]
        assert value == rounded(expected["t2m"], value)


@pytest.mark.parametrize("kind", ["csv", "netcdf"])
def test_downloads_are_the_forecast_of_the_point(visit, europe: Served, tmp_path: Path, kind: str):
    page = visit(europe)
    page.ask("50.5, 9.25")
    with page.page.expect_download() as started:
        page.page.click(f"#point-{kind}")
    path = tmp_path / started.value.suggested_filename
    started.value.save_as(path)
    reading = page.number("point-value")
    if kind == "csv":
        rows = [row for row in csv_rows(path) if row["quantile"] == "0.5"]
        assert len(rows) == 16
        value = rows[3]["t2m"]  # after an hour
    else:
        with xr.open_dataset(path) as made:
            curve = made["t2m"].sel(quantile=0.5).squeeze()
            assert curve.sizes == {"time": 16}
            value = str(float(curve[3]))
    assert rounded(value, reading) == reading


def test_on_a_plane_too(visit, wave: Served, tmp_path: Path):
    page = visit(wave)
    page.ask("0.5, 0.25")
    (expected,) = wave.predicted(tmp_path, "--at", "0.5,0.25", "--times", "+1ms")
    assert page.number("point-value") == rounded(expected["u"], page.number("point-value"))
