"""Markdown tables and the numbers in them."""

from __future__ import annotations

from stonet.experiments.tables import error, markdown_table, number, percent, pivot, table, text


def test_numbers_are_shown_in_the_unit_of_the_data_set() -> None:
    assert number(7200.0, "radiation-bhutan", 360.0) == "2 ± 0.1"
    assert number(None, "wave") == "-" and number(0.12345) == "0.1235"
    assert percent(12.34) == "+12.3 %" and percent(1900.0) == "20 times"
    assert markdown_table(["a", "b"], [["1", "2"]]) == ["| a | b |", "|---|---|", "| 1 | 2 |", ""]


def test_tables_have_one_row_per_line_and_pivots_one_per_key() -> None:
    lines = [{"dataset": "wave", "mae": 0.002}, {"dataset": "x"}]
    columns = {"data set": text("dataset"), "MAE": error("mae")}
    assert table(columns, lines)[2:] == ["| wave | 2 |", "| x | - |", ""]
    cells = {(("a",), 1): "p", (("b",), 2): "q"}
    expected = ["| row | one | two |", "|---|---|---|", "| a | p | - |", "| b | - | q |", ""]
    assert pivot(["row"], {"one": 1, "two": 2}, cells) == expected
