"""The study's rows: one for each training; the table shows all of them."""

from __future__ import annotations

from benchmarks.study import BEGIN, END, PAGE, ROWS, Row, table, with_row


def row(label: str, **changes: object) -> Row:
    made: Row = {"data": "wave", "label": label, "settings": ["a=1"], "minutes": 2.0, "seed": 0}
    made |= {"steps": 5, "validation": 0.123, "unit": "K", "commit": "abc"}
    return made | changes


def test_a_training_has_one_row() -> None:
    rows = with_row([row("one"), row("two")], row("one", validation=0.5))
    assert [(r["label"], r["validation"]) for r in rows] == [("two", 0.123), ("one", 0.5)]
    assert len(with_row(rows, row("one", seed=1))) == 3


def test_the_page_has_the_table_of_the_stored_rows() -> None:
    import json

    written = PAGE.read_text().split(BEGIN)[1].split(END)[0]
    assert written == table(json.loads(ROWS.read_text()))
    assert "| 0.123 |  |  |" in table([row("one")]) and "| 0.4 | 0.3 |" in table(
        [row("one", test=0.4, safe_test=0.3)]
    )
