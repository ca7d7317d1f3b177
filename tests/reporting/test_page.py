"""The page holds the scores of `evaluate`, nothing from outside, and no markup from the data."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from helpers.report_page import Page
from helpers.report_runs import CHANNELS, HOSTILE, Report

from stonet.evaluation.metrics import find
from stonet.evaluation.reliability import reliability
from stonet.reporting.page import render
from stonet.reporting.sections.data import availability

SECTIONS = (
    "scores", "maps", "stations", "cases", "intervals", "influence", "data", "training",
    "provenance",
)  # fmt: skip
MAX_BYTES = 5_000_000
METRICS = {"MAE": "mae", "RMSE": "rmse", "MAPE (%)": "mape", "bias": "bias", "CRPS": "crps",
           "in 90 %": "coverage_90"}  # fmt: skip


def score_rows(page: Page) -> list[dict[str, str]]:
    """Rows of the table of scores: what they are about, and values by metric."""
    table = page.section("scores").find("table")[0]
    columns = [head.text for head in table.find("th")]
    rows = []
    for row in table.find("tbody")[0].find("tr"):
        cells = zip(columns, row.find("td"), strict=True)
        values = {name: cell.attributes.get("data-value", "") for name, cell in cells}
        about = {k: row.attributes[f"data-{k}"] for k in ("model", "points", "channel")}
        rows.append(about | {METRICS[n]: text for n, text in values.items() if n in METRICS})
    return rows


def test_the_table_holds_all_scores_of_evaluate_to_the_last_digit(made: Report) -> None:
    shown, records = score_rows(made.page), made.results.records
    wanted = {(r["model"], r["points"], r["channel"]) for r in records}
    assert {(row["model"], row["points"], row["channel"]) for row in shown} == wanted
    for row in shown:
        about = {key: row.pop(key) for key in ("model", "points", "channel")}
        assert {"mae", "rmse", "mape", "bias"} <= set(row)
        for metric, text in row.items():
            if about["channel"] == "all" and metric == "crps":
                continue  # has a unit
            value = find(records, **about, metric=metric, lead="all")
            assert (math.isnan(value) and text == "") or float(text) == value, (about, metric)


def test_curves_by_lead_are_those_of_the_records(made: Report) -> None:
    for group, title in {"seen": "seen in training", "unseen-no-history": "unseen, without history"}.items():  # fmt: skip # noqa: E501
        hover = made.page.hover(f"Points {title}", "scores")
        channel = made.results.trained.channels[0]
        for model, _, values in hover["lines"]:
            about = {"model": model, "points": group, "channel": channel, "metric": "mae"}
            expected = [find(made.results.records, **about, lead=k + 1) for k in range(4)]
            np.testing.assert_allclose(values, expected, rtol=1e-3)


def test_every_section_is_there_and_linked(made: Report) -> None:
    sections = made.page.root.find("section")
    assert tuple(section.attributes["id"] for section in sections) == SECTIONS
    links = [link.attributes["href"] for link in made.page.root.find("a")]
    assert links == [f"#{name}" for name in SECTIONS]
    for section in sections:
        assert section.find("h2") and len(section.text.split()) > 20
        has_figure = section.attributes["id"] != "provenance"
        assert bool(section.find("svg")) == has_figure, section.attributes["id"]


def test_names_in_the_page_are_unique(made: Report) -> None:
    names = [e.attributes["id"] for e in made.page.root.walk() if "id" in e.attributes]
    assert len(set(names)) == len(names)
    assert set(made.page.values["hover"]) <= set(names)
    used = {e.attributes["href"][1:] for e in made.page.root.find("use")}
    assert used <= set(names)


def test_nothing_is_loaded_from_anywhere(made: Report) -> None:
    for element in made.page.root.walk():
        for name in ("src", "href", "xlink:href", "action", "srcset", "data", "poster"):
            link = element.attributes.get(name, "#")
            assert link.startswith(("#", "data:image/png;base64,")), (element.tag, link)
        assert element.tag not in ("link", "iframe", "object", "embed", "base", "form")
        assert "style" not in element.attributes  # the policy forbids it
        assert not [name for name in element.attributes if name.startswith("on")]
    (style,) = made.page.root.find("style")
    assert "url(" not in style.text and "@import" not in style.text
    addresses = set(re.findall(r"\w+://[^\"'\s<]+", made.text))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, not a place


def test_the_policy_allows_this_style_and_this_script_only(made: Report) -> None:
    (meta,) = made.page.root.find("meta", http_equiv="Content-Security-Policy")
    policy = dict(part.strip().split(" ", 1) for part in meta.attributes["content"].split(";"))
    assert policy["default-src"] == "'none'" and policy["img-src"] == "data:"
    (style,) = made.page.root.find("style")
    script = next(s for s in made.page.root.find("script") if "type" not in s.attributes)
    for rule, text in (("style-src", style.text), ("script-src", script.text)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert policy[rule] == f"'sha256-{digest}'"


def test_the_page_is_small(made: Report) -> None:
    assert len(made.text.encode()) < MAX_BYTES / 3


def test_names_of_stations_and_channels_stay_text(spherical: Report) -> None:
    page, values = spherical.page, spherical.page.values
    assert len(page.root.find("script")) == 2
    assert not page.root.find("img") and not page.root.find("b")
    assert "<script>alert" not in spherical.text and "<img" not in spherical.text
    assert HOSTILE in [option.text for option in page.root.find("option")]
    assert HOSTILE in values["map"]["names"] and values["series"][1]["channel"] == CHANNELS[1]
    assert CHANNELS[1] in page.section("scores").text
    assert 'alps "2026" <b>' in page.root.find("h1")[0].text


def test_values_beside_the_pointer_are_those_of_the_cases(made: Report) -> None:
    results, page = made.results, made.page
    _, row, _ = results.cases.ranked(0)
    figure = page.section("maps").find("figure")[1]
    (plot,) = figure.find("div", class_="plot")
    shown = page.values["hover"][plot.attributes["id"]]["values"]
    expected = results.cases.forecast[row, 0, :, 0]
    np.testing.assert_allclose(np.array(shown)[results.cases.points], expected, rtol=1e-3)
    assert page.values["map"]["names"] == list(results.task.dataset.points.names)


def test_the_series_of_a_station_are_stored_to_a_small_step(made: Report) -> None:
    results = made.results
    (first, *_) = made.page.values["series"]
    length = len(first["times"])
    for kind, kept in (("observed", results.cases.truth), ("forecast", results.cases.forecast)):
        whole = np.frombuffer(base64.b64decode(first[kind]), "<i2").reshape(-1, length)
        values = np.where(
            whole == -32768, np.nan, first["low_value"] + (whole + 30000.0) * first["step"]
        )
        rows = -(length // kept.shape[1])
        expected = kept[rows:, :, :, 0].reshape(-1, kept.shape[2]).T
        np.testing.assert_allclose(values, expected, atol=first["step"])
    assert (np.diff(first["times"]) > 0).all()


def test_without_a_calibration_the_page_says_so(planar: Report) -> None:
    results = replace(planar.results, reliability=None)
    section = Page(render(results)).section("intervals")
    assert section.find("p", class_="missing") and not section.find("svg")
    assert "no calibration" in section.text


def test_intervals_are_counted_as_by_reliability(made: Report) -> None:
    results, found = made.results, made.results.reliability
    assert found is not None and results.origin.calibration is not None
    again = reliability(results.trained, results.task, results.origin.calibration)
    np.testing.assert_allclose(found.pit, again.pit)
    assert found.coverage("lead", 0.9) == again.coverage("lead", 0.9)
    assert found.coverage("distance", 0.5) == again.coverage("distance", 0.5)
    hover = made.page.hover("Coverage by lead", "intervals")
    shown = {name: values for name, _, values in hover["lines"]}["90 % interval"]
    expected = [100 * share for share in again.coverage("lead", 0.9).values()]
    np.testing.assert_allclose(shown, expected, rtol=1e-3)


def test_errors_of_stations_average_to_the_score(made: Report) -> None:
    for (model, group), breakdown in made.results.breakdowns.items():
        for by, sums in breakdown.sums.items():
            mean = sums.total.sum(0) / sums.count.sum(0)
            for number, channel in enumerate(made.results.trained.channels):
                about = {"model": model, "points": group, "channel": channel}
                score = find(made.results.records, **about, metric="mae", lead="all")
                assert mean[number] == pytest.approx(score, rel=1e-9), by


def test_facts_name_the_origin(made: Report) -> None:
    text = made.page.section("provenance").text
    assert str(made.run) in text and "Seed" in text and "train.steps" in text
    for digest in (made.results.origin.files["model.safetensors"],):
        assert digest in text


def test_availability_is_the_share_of_values(spherical: Report) -> None:
    episodes = spherical.dataset.episodes
    share = availability(episodes)
    observed = episodes[0].observed.mean((0, 2))
    np.testing.assert_allclose(share.mean(0), observed, atol=0.02)
    one = availability((episodes[0].between(0, 100),))
    np.testing.assert_allclose(one, episodes[0].observed[:100].mean(2))
