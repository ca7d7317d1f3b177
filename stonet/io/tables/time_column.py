"""Times of a table's rows in UTC, collected block by block.

Whether 03/04 is in March or in April may follow from another row, so both readings are kept until
the last block. An ambiguous time is an error: times are never shifted without notice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Int64

from stonet.config import ReadConfig
from stonet.data.durations import DAY, UNITS
from stonet.errors import DataError
from stonet.io.dates import (
    NAT,
    ParsedTimes,
    from_parts,
    in_nanoseconds,
    parse_numbers,
    parse_texts,
    parse_times_of_day,
    parse_zone,
)
from stonet.io.tables.columns import (
    DATE_PARTS,
    Table,
    find_column,
    normalise_name,
    split_unit,
)

if TYPE_CHECKING:
    import pandas as pd

EXAMPLE = "expected e.g. 2019-03-15T06:00Z"
ORDERS = ("month", "day")


class TimeColumn:
    """Collects the times of a table's rows.

    Args:
        table: whose rows are read.
        columns: one of complete times; date and time of day; or year, month, day and so on.
        config: states the time zone of times without one.
        plane: whether numbers without a unit are elapsed seconds.
        month_first: whether 03/04/06 is known to be in March.
    """

    def __init__(
        self,
        table: Table,
        columns: tuple[str, ...],
        config: ReadConfig,
        plane: bool = False,
        month_first: bool = False,
    ) -> None:
        self.table, self.columns = table, columns
        self.plane, self.month_first = plane, month_first
        self.zone, self.zone_name = parse_zone(config.timezone), config.timezone
        units = {split_unit(name)[1].casefold() for name in columns}
        plain = [normalise_name(split_unit(name)[0]) for name in columns]
        self.in_utc = bool(units & {"utc", "gmt", "z"}) or any(
            name.startswith("utc") or name.endswith("utc") for name in plain
        )
        self.times: tuple[list[np.ndarray], ...] = ([], [])  # read month first, read day first
        self.impossible: dict[str, str] = {}  # an example that is not a date in this order
        self.errors: dict[str, DataError] = {}  # raised if this is the order
        self.kinds: dict[str, str] = {}  # how times are understood, with an example of each
        self.has_naive = self.has_days = self.has_times_of_day = False

    def add(self, block: pd.DataFrame) -> Bool[np.ndarray, " row"]:
        """Parse a block; True where a row has a time.

        Args:
            block: consecutive rows.
        """
        parts = [n for n in self.columns if any(find_column([n], part) for part in DATE_PARTS)]
        if len(self.columns) == 1 and not find_column(self.columns, "year"):
            month_first, day_first, aware = self._parse_column(block)
        elif find_column(self.columns[:1], "year"):
            month_first, aware = self._parse_parts(block, parts), np.zeros(len(block), dtype=bool)
            rest = self.columns[len(parts) :]
            day_first = month_first = _plus(month_first, self._times_of_day(block, rest))
        else:
            month_first, day_first, aware = self._parse_column(block)
            same, times = day_first is month_first, self._times_of_day(block, self.columns[1:])
            month_first = _plus(month_first, times)
            day_first = month_first if same else _plus(day_first, times)
        self._append(block, month_first, day_first, aware)
        return (month_first != NAT) | (day_first != NAT)

    def _append(
        self, block: pd.DataFrame, month_first: np.ndarray, day_first: np.ndarray, aware: np.ndarray
    ) -> None:
        """Keep both readings of a block, or one if they are the same."""
        if day_first is month_first:
            times = self._in_utc(block, month_first, aware)
            for blocks in self.times:
                blocks.append(times)
            return
        for blocks, order, times in zip(self.times, ORDERS, (month_first, day_first), strict=True):
            try:
                blocks.append(self._in_utc(block, times, aware))
            except DataError as error:  # irrelevant if the order turns out to be the other one
                self.errors.setdefault(order, error)
                blocks.append(times)

    def keep(self, rows: Bool[np.ndarray, " row"]) -> None:
        """Keep only these rows of the last block.

        Args:
            rows: whether each row of the last block is kept.
        """
        same = self.times[0][-1] is self.times[1][-1]
        self.times[0][-1] = self.times[0][-1][rows]
        self.times[1][-1] = self.times[0][-1] if same else self.times[1][-1][rows]

    def finish(self) -> tuple[Int64[np.ndarray, " row"], bool, tuple[str, ...]]:
        """All times, whether they are dates, and notes on what was assumed."""
        if len(self.kinds) > 1 or (self.has_days and self.has_times_of_day and self.zone):
            kinds = self.kinds if len(self.kinds) > 1 else {"days": "some", "times": "some"}
            raise DataError(
                f"'{self.table.origin}': '{self.columns[0]}' holds times of several kinds "
                f"({'; '.join(f'{example}: {kind}' for kind, example in kinds.items())}). Write "
                "all of them in one format, best ISO (2019-03-15T06:00Z)."
            )
        order = self._order()
        if ORDERS[order] in self.errors:
            raise self.errors[ORDERS[order]]
        calendar = "elapsed" not in self.kinds
        notes: tuple[str, ...] = ()
        local = self.has_naive and self.has_times_of_day and calendar
        if local and self.zone is None and not self.in_utc:
            notes = ("Times without a zone are read as UTC; if they are not, give --timezone.",)
        return np.concatenate(self.times[order]), calendar, notes

    def _order(self) -> int:
        """0 for month first, 1 for day first: the one that fits every row."""
        pairs = zip(*self.times, strict=True)
        if all(a is b or np.array_equal(a, b) for a, b in pairs):
            return 0
        if self.month_first:
            if "month" in self.impossible:
                raise self._not_a_time(self.impossible["month"])
            return 0
        if len(self.impossible) == 1:
            return 1 if "month" in self.impossible else 0
        if self.impossible:
            raise DataError(
                f"'{self.table.origin}': '{self.columns[0]}' has dates with the month first "
                f"({self.impossible['day']}) and with the day first ({self.impossible['month']}). "
                "Write ISO dates (2019-03-15)."
            )
        raise DataError(
            f"'{self.table.origin}': the dates in '{self.columns[0]}' may have the month or the "
            "day first: none has a day above 12. Write ISO dates (2019-03-15)."
        )

    def _parse_column(self, block: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each row: the time read month first, read day first, and whether it has a zone."""
        import pandas as pd

        column = block[self.columns[0]]
        if isinstance(column.dtype, pd.PeriodDtype):
            column = column.dt.to_timestamp()
        if column.dtype.kind in "Mm":
            return self._from_datetimes(column)
        codes, uniques = pd.factorize(column)
        if not len(uniques):
            nothing = np.full(len(block), NAT)
            return nothing, nothing, np.zeros(len(block), dtype=bool)
        if pd.api.types.is_numeric_dtype(uniques.dtype):
            texts = pd.Index(uniques)
            parsed = parse_numbers(np.asarray(uniques), self.columns[0], self.plane)
        else:
            texts = pd.Index(uniques.astype(str)).str.strip()
            parsed = parse_texts(texts, self.columns[0], self.plane)
        if parsed is None:
            raise DataError(
                f"'{self.table.origin}': '{self.columns[0]}' holds bare numbers ({texts[0]}, "
                f"...); {EXAMPLE}, or seconds since 1970 in a column named 'epoch'. Elapsed time "
                "needs its unit in the name, e.g. 'time (s)'."
            )
        self._check_order(parsed, block, texts, codes)
        self.kinds.setdefault(parsed.kind, str(texts[0]))
        self._note_kind(bool(parsed.aware.all()), parsed.has_time_of_day)
        month_first = np.r_[parsed.month_first, NAT][codes]  # code -1: missing
        same = parsed.day_first is parsed.month_first
        day_first = month_first if same else np.r_[parsed.day_first, NAT][codes]
        return month_first, day_first, np.r_[parsed.aware, True][codes]

    def _check_order(
        self, parsed: ParsedTimes, block: pd.DataFrame, texts: pd.Index, codes: np.ndarray
    ) -> None:
        """Refuse what is not a time; remember which order of month and day is impossible."""
        wrong = [times == NAT for times in (parsed.month_first, parsed.day_first)]
        for order, bad in zip(("", *ORDERS), (wrong[0] & wrong[1], *wrong), strict=True):
            if bad.any() and order not in self.impossible:
                row = int(np.isin(codes, np.flatnonzero(bad)).argmax())
                example = f"'{texts[codes[row]]}' in {self._row(block, row)}"
                if not order:
                    raise self._not_a_time(example)
                self.impossible[order] = example

    def _from_datetimes(self, column: pd.Series) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Dates, times or durations that a DataFrame or a Parquet file stores as such."""
        aware = column.dtype.kind == "m" or getattr(column.dt, "tz", None) is not None
        if column.dtype.kind == "m":
            self.kinds["elapsed"] = str(column.iloc[0])
        elif aware:
            column = column.dt.tz_convert("UTC").dt.tz_localize(None)
        times = in_nanoseconds(column.to_numpy())
        wrong = (times == NAT) & column.notna().to_numpy()
        if wrong.any():
            row = int(wrong.argmax())
            where = f"{self.table.row_label} {column.index[row]}"
            raise self._not_a_time(f"'{column.iloc[row]}' in {where}")
        self._note_kind(aware, bool((times[times != NAT] % DAY).any()))
        return times, times, np.full(len(times), aware)

    def _parse_parts(self, block: pd.DataFrame, names: list[str]) -> np.ndarray:
        """Times from columns of year, month, day and so on."""
        parts = [self._integers(block, name) for name in names]
        present = ~np.isnan(np.sum(parts, axis=0))
        times = from_parts([np.where(present, part, 1) for part in parts])
        wrong = present & (times == NAT)
        if wrong.any():
            row = int(wrong.argmax())
            example = ", ".join(f"{name} {block[name].iloc[row]}" for name in names)
            raise self._not_a_time(f"{example} in {self._row(block, row)}")
        self._note_kind(False, len(names) > 3)
        return np.where(present, times, NAT)

    def _integers(self, block: pd.DataFrame, name: str) -> np.ndarray:
        import pandas as pd

        numbers = pd.to_numeric(block[name], errors="coerce").to_numpy(np.float64, na_value=np.nan)
        wrong = ~(np.abs(numbers) < 1e6) | (numbers % 1 != 0)
        wrong &= block[name].notna().to_numpy()
        if wrong.any():
            row = int(wrong.argmax())
            raise self._not_a_time(f"{name} '{block[name].iloc[row]}' in {self._row(block, row)}")
        return numbers

    def _times_of_day(self, block: pd.DataFrame, names: tuple[str, ...]) -> np.ndarray:
        """Time of day of each row in nanoseconds, from its column and possibly one of minutes."""
        import pandas as pd

        if not names:
            return np.zeros(len(block), dtype=np.int64)
        codes, uniques = pd.factorize(block[names[0]])
        texts = pd.Index(uniques.astype(str)).str.strip()
        times = np.r_[parse_times_of_day(texts), 0].astype(np.int64)[codes]
        wrong = (times == NAT) | ((codes < 0) & block[self.columns[0]].notna().to_numpy())
        if wrong.any():
            row = int(wrong.argmax())
            text = texts[codes[row]] if codes[row] >= 0 else ""
            raise self._not_a_time(f"{names[0]} '{text}' in {self._row(block, row)}")
        self._note_kind(False, True)
        if len(names) > 1:
            minutes = np.nan_to_num(self._integers(block, names[1])).astype(np.int64)
            times = times + minutes * UNITS["min"]
        return times

    def _in_utc(
        self, block: pd.DataFrame, times: np.ndarray, aware: Bool[np.ndarray, " row"]
    ) -> Int64[np.ndarray, " row"]:
        """Local times in UTC; hours that occur twice or never are refused. Dates stay the same."""
        import pandas as pd

        if self.zone is None or self.in_utc or aware.all() or not self.has_times_of_day:
            return times
        codes, uniques = pd.factorize(np.where(aware, NAT, times))
        local = pd.DatetimeIndex(uniques.astype("M8[ns]"))
        zoned = local.tz_localize(self.zone, ambiguous="NaT", nonexistent="NaT")
        in_utc = in_nanoseconds(zoned.tz_convert("UTC").tz_localize(None).to_numpy())
        wrong = (in_utc == NAT) & (uniques != NAT)
        if wrong.any():
            rows = np.flatnonzero(np.isin(codes, np.flatnonzero(wrong)))
            first = local[[codes[rows[0]]]]
            forward = first.tz_localize(self.zone, ambiguous="NaT", nonexistent="shift_forward")
            numbers = ", ".join(str(block.index[row]) for row in rows[:5])
            raise DataError(
                f"'{self.table.origin}': {first[0]} "
                f"{'occurs twice' if forward.isna()[0] else 'does not exist'} in {self.zone_name}, "
                f"where the clocks change ({self.table.row_label} {numbers}"
                f"{', ...' if len(rows) > 5 else ''}). Write times in UTC or with their offset "
                "(+02:00); if the clocks never changed, give a fixed --timezone such as +01:00."
            )
        return np.where(aware, times, in_utc[codes])

    def _note_kind(self, aware: bool, has_time_of_day: bool) -> None:
        self.has_naive |= not aware
        self.has_times_of_day |= has_time_of_day
        self.has_days |= not has_time_of_day and len(self.columns) == 1

    def _not_a_time(self, example: str) -> DataError:
        return DataError(f"'{self.table.origin}': {example} is not a time; {EXAMPLE}.")

    def _row(self, block: pd.DataFrame, row: int) -> str:
        return f"{self.table.row_label} {block.index[row]}"


def _plus(dates: np.ndarray, times: np.ndarray) -> np.ndarray:
    return np.where(dates == NAT, NAT, dates + times)
