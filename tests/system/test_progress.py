"""Progress reaches the active callback, and no other."""

from __future__ import annotations

from stonet.system.progress import report_progress, reporting_to


def test_progress_is_reported_to_the_innermost_callback() -> None:
    outer: list[tuple[int, int, str]] = []
    inner: list[tuple[int, int, str]] = []
    report_progress(0, 1)  # without a callback: ignored
    with reporting_to(lambda *args: outer.append(args)):
        report_progress(1, 4)
        with reporting_to(lambda *args: inner.append(args)):
            report_progress(2, 4, "inner")
        report_progress(3, 4, "outer")
    report_progress(4, 4)
    assert outer == [(1, 4, ""), (3, 4, "outer")] and inner == [(2, 4, "inner")]
