"""A CSV of the reader's own sites."""

from __future__ import annotations

from pathlib import Path

from helpers.browser import Served, csv_rows

CSV = 'name,lat,lon\n"Farm, north",50.5,9.25\nMill,47.25,6.5\nIsland,35,-20\n'
DROP = """([text, name]) => {
  const files = new DataTransfer();
  files.items.add(new File([text], name, { type: "text/csv" }));
  for (const kind of ["dragover", "drop"]) {
    document.getElementById("map").dispatchEvent(
      new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer: files }));
  }
}"""


def test_a_dropped_file_gives_a_table(visit, europe: Served, tmp_path: Path):
    page = visit(europe)
    page.page.evaluate(DROP, [CSV, "sites.csv"])
    page.page.wait_for_selector("#sites-table tbody tr")
    assert "3 sites of sites.csv" in page.text("sites-words") and "1 far" in page.text(
        "sites-words"
    )
    head, farm, mill, island = page.table("sites-table")
    assert len(head) == 5 and head[1].endswith("+1 h")
    assert farm[0] == "Farm, north" and island[0] == "Island *"
    rows = europe.predicted(tmp_path, "--at", "47.25,6.5", "--times", "+1h", "--times", "+4h")
    assert [f"{float(row['t2m']):.1f}" for row in rows] == [mill[1], mill[4]]


def test_a_chosen_file_can_be_saved_with_its_forecasts(visit, europe: Served, tmp_path: Path):
    sites = tmp_path / "mine.csv"
    sites.write_text("\ufeffid;latitude;longitude\nA;50,5;9,25\n")
    page = visit(europe)
    page.page.set_input_files("#file", sites)
    page.page.wait_for_selector("#sites-table tbody tr")
    assert [row[0] for row in page.table("sites-table")[1:]] == ["A"]
    for button, suffix in (("#sites-csv", ".csv"), ("#sites-netcdf", ".nc")):
        with page.page.expect_download() as started:
            page.page.click(button)
        assert started.value.suggested_filename.endswith(suffix)
        started.value.save_as(tmp_path / f"saved{suffix}")
    rows = csv_rows(tmp_path / "saved.csv")
    assert len(rows) == 4 * 5 and {row["station"] for row in rows} == {"A"}  # times x quantiles
    page.page.click("#sites-clear")
    assert page.page.locator("#sites").is_hidden()


def test_a_wrong_file_is_explained(visit, europe: Served):
    page = visit(europe)
    page.page.evaluate(DROP, ["town,north,east\nA,1,2\n", "wrong.csv"])
    page.page.wait_for_selector("#alert-text")
    assert "wrong.csv: Expected columns named lat and lon" in page.text("alert-text")
    page.page.evaluate(DROP, ["name,lat,lon\nA,1,two\n", "words.csv"])
    page.until("document.getElementById('alert').innerText.includes('words.csv')")
    assert 'Line 2 has no number in column lon: "two"' in page.text("alert-text")
