"""The times of a table, block by block, in UTC; never a silent shift.

What only the whole column can tell (is 03/04 in March or in April?) is kept open until the end.
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
    Parsed,
    from_parts,
    in_nanoseconds,
    parse_clocks,
    parse_numbers,
    parse_texts,
    parse_zone,
)
from stonet.io.tables.columns import PARTS, Table, find, split_unit, squashed

if TYPE_CHECKING:
    import pandas as pd

EXAMPLE = "expected e.g. 2019-03-15T06:00Z"
ORDERS = ("month", "day")


class Times:
    """Collects the times of a table's rows.

    Args:
        table: where they come from.
        columns: one of whole times; date and time of day; or year, month, day and so on.
        config: the time zone of times without one.
        plane: whether plain numbers are seconds from zero.
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
        plain = [squashed(split_unit(name)[0]) for name in columns]
        self.in_utc = bool(units & {"utc", "gmt", "z"}) or any(
            name.startswith("utc") or name.endswith("utc") for name in plain
        )
        self.times: tuple[list[np.ndarray], ...] = ([], [])  # with the month, with the day first
        self.impossible: dict[str, str] = {}  # an example that is no date in this order
        self.refused: dict[str, DataError] = {}  # if this is the order
        self.kinds: dict[str, str] = {}  # how they are understood: an example of each
        self.naive = self.days = self.moments = False

    def add(self, block: pd.DataFrame) -> Bool[np.ndarray, " row"]:
        """Parse a block; True where a row has a time."""
        parts = [name for name in self.columns if any(find([name], part) for part in PARTS)]
        if len(self.columns) == 1 and not find(self.columns, "year"):
            month_first, day_first, aware = self._whole(block)
        elif find(self.columns[:1], "year"):
            month_first, aware = self._parts(block, parts), np.zeros(len(block), dtype=bool)
            rest = self.columns[len(parts) :]
            day_first = month_first = _plus(month_first, self._clocks(block, rest))
        else:
            month_first, day_first, aware = self._whole(block)
            clocks, same = self._clocks(block, self.columns[1:]), day_first is month_first
            month_first = _plus(month_first, clocks)
            day_first = month_first if same else _plus(day_first, clocks)
        self._append(block, month_first, day_first, aware)
        return (month_first != NAT) | (day_first != NAT)

    def _append(
        self, block: pd.DataFrame, month_first: np.ndarray, day_first: np.ndarray, aware: np.ndarray
    ) -> None:
        if day_first is month_first:
            times = self._in_utc(block, month_first, aware)
            for kept in self.times:
                kept.append(times)
            return
        for kept, order, times in zip(self.times, ORDERS, (month_first, day_first), strict=True):
            try:
                kept.append(self._in_utc(block, times, aware))
            except DataError as error:  # of no concern if the order turns out to be the other one
                self.refused.setdefault(order, error)
                kept.append(times)

    def keep(self, rows: Bool[np.ndarray, " row"]) -> None:
        """Only these rows of the last block."""
        same = self.times[0][-1] is self.times[1][-1]
        self.times[0][-1] = self.times[0][-1][rows]
        self.times[1][-1] = self.times[0][-1] if same else self.times[1][-1][rows]

    def finish(self) -> tuple[Int64[np.ndarray, " row"], bool, tuple[str, ...]]:
        """All times, whether they are dates, and what was assumed."""
        if len(self.kinds) > 1 or (self.days and self.moments and self.zone):
            kinds = self.kinds if len(self.kinds) > 1 else {"days": "some", "moments": "some"}
            raise DataError(
                f"'{self.table.origin}': '{self.columns[0]}' holds times of several kinds "
                f"({'; '.join(f'{example}: {kind}' for kind, example in kinds.items())}). Write "
                "all of them alike, best as ISO (2019-03-15T06:00Z)."
            )
        order = self._order()
        if ORDERS[order] in self.refused:
            raise self.refused[ORDERS[order]]
        calendar = "elapsed" not in self.kinds
        notes: tuple[str, ...] = ()
        if self.naive and self.moments and calendar and self.zone is None and not self.in_utc:
            notes = ("Times without a zone are taken as UTC; if they are not, give --timezone.",)
        return np.concatenate(self.times[order]), calendar, notes

    def _order(self) -> int:
        """0 for the month first, 1 for the day first: what fits every row."""
        pairs = zip(*self.times, strict=True)
        if all(a is b or np.array_equal(a, b) for a, b in pairs):
            return 0
        if self.month_first:
            if "month" in self.impossible:
                raise self._no_time(self.impossible["month"])
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

    def _whole(self, block: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each row: the time with the month first, with the day first, and if it has a zone."""
        import pandas as pd

        column = block[self.columns[0]]
        if isinstance(column.dtype, pd.PeriodDtype):
            column = column.dt.to_timestamp()
        if column.dtype.kind in "Mm":
            return self._typed(column)
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
                f"'{self.table.origin}': '{self.columns[0]}' holds plain numbers ({texts[0]}, "
                f"...); {EXAMPLE}, or seconds since 1970 in a column named 'epoch'. Elapsed time "
                "needs its unit in the name, e.g. 'time (s)'."
            )
        self._check(parsed, block, texts, codes)
        self.kinds.setdefault(parsed.kind, str(texts[0]))
        self._saw(bool(parsed.aware.all()), parsed.clock)
        month_first = np.r_[parsed.month_first, NAT][codes]  # code -1: missing
        same = parsed.day_first is parsed.month_first
        day_first = month_first if same else np.r_[parsed.day_first, NAT][codes]
        return month_first, day_first, np.r_[parsed.aware, True][codes]

    def _check(
        self, parsed: Parsed, block: pd.DataFrame, texts: pd.Index, codes: np.ndarray
    ) -> None:
        """Refuse what is no time; remember which order of month and day cannot be."""
        wrong = [times == NAT for times in (parsed.month_first, parsed.day_first)]
        for order, lost in zip(("", *ORDERS), (wrong[0] & wrong[1], *wrong), strict=True):
            if lost.any() and order not in self.impossible:
                row = int(np.isin(codes, np.flatnonzero(lost)).argmax())
                example = f"'{texts[codes[row]]}' in {self._at(block, row)}"
                if not order:
                    raise self._no_time(example)
                self.impossible[order] = example

    def _typed(self, column: pd.Series) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Dates, moments or durations that a frame or a Parquet file holds as such."""
        aware = column.dtype.kind == "m" or getattr(column.dt, "tz", None) is not None
        if column.dtype.kind == "m":
            self.kinds["elapsed"] = str(column.iloc[0])
        elif aware:
            column = column.dt.tz_convert("UTC").dt.tz_localize(None)
        times = in_nanoseconds(column.to_numpy())
        lost = (times == NAT) & column.notna().to_numpy()
        if lost.any():
            row = int(lost.argmax())
            raise self._no_time(f"'{column.iloc[row]}' in {self.table.row} {column.index[row]}")
        self._saw(aware, bool((times[times != NAT] % DAY).any()))
        return times, times, np.full(len(times), aware)

    def _parts(self, block: pd.DataFrame, names: list[str]) -> np.ndarray:
        parts = [self._integers(block, name) for name in names]
        there = ~np.isnan(np.sum(parts, axis=0))
        times = from_parts([np.where(there, part, 1) for part in parts])
        wrong = there & (times == NAT)
        if wrong.any():
            row = int(wrong.argmax())
            told = ", ".join(f"{name} {block[name].iloc[row]}" for name in names)
            raise self._no_time(f"{told} in {self._at(block, row)}")
        self._saw(False, len(names) > 3)
        return np.where(there, times, NAT)

    def _integers(self, block: pd.DataFrame, name: str) -> np.ndarray:
        import pandas as pd

        numbers = pd.to_numeric(block[name], errors="coerce").to_numpy(np.float64, na_value=np.nan)
        wrong = ~(np.abs(numbers) < 1e6) | (numbers % 1 != 0)
        wrong &= block[name].notna().to_numpy()
        if wrong.any():
            row = int(wrong.argmax())
            raise self._no_time(f"{name} '{block[name].iloc[row]}' in {self._at(block, row)}")
        return numbers

    def _clocks(self, block: pd.DataFrame, names: tuple[str, ...]) -> np.ndarray:
        """Time of day of each row, in nanoseconds, from a column of it and one of minutes."""
        import pandas as pd

        if not names:
            return np.zeros(len(block), dtype=np.int64)
        codes, uniques = pd.factorize(block[names[0]])
        texts = pd.Index(uniques.astype(str)).str.strip()
        clocks = np.r_[parse_clocks(texts), 0].astype(np.int64)[codes]
        wrong = (clocks == NAT) | ((codes < 0) & block[self.columns[0]].notna().to_numpy())
        if wrong.any():
            row = int(wrong.argmax())
            text = texts[codes[row]] if codes[row] >= 0 else ""
            raise self._no_time(f"{names[0]} '{text}' in {self._at(block, row)}")
        self._saw(False, True)
        if len(names) > 1:
            minutes = np.nan_to_num(self._integers(block, names[1])).astype(np.int64)
            clocks = clocks + minutes * UNITS["min"]
        return clocks

    def _in_utc(
        self, block: pd.DataFrame, times: np.ndarray, aware: Bool[np.ndarray, " row"]
    ) -> Int64[np.ndarray, " row"]:
        """Local times in UTC; an hour that comes twice or not at all is refused. Days stay days."""
        import pandas as pd

        if self.zone is None or self.in_utc or aware.all() or not self.moments:
            return times
        codes, uniques = pd.factorize(np.where(aware, NAT, times))
        local = pd.DatetimeIndex(uniques.astype("M8[ns]"))
        placed = local.tz_localize(self.zone, ambiguous="NaT", nonexistent="NaT")
        in_utc = in_nanoseconds(placed.tz_convert("UTC").tz_localize(None).to_numpy())
        lost = (in_utc == NAT) & (uniques != NAT)
        if lost.any():
            rows = np.flatnonzero(np.isin(codes, np.flatnonzero(lost)))
            first = local[[codes[rows[0]]]]
            forward = first.tz_localize(self.zone, ambiguous="NaT", nonexistent="shift_forward")
            numbers = ", ".join(str(block.index[row]) for row in rows[:5])
            raise DataError(
                f"'{self.table.origin}': {first[0]} "
                f"{'occurs twice' if forward.isna()[0] else 'does not exist'} in {self.zone_name}, "
                f"where the clock is changed ({self.table.row} {numbers}"
                f"{', ...' if len(rows) > 5 else ''}). Write times in UTC or with their offset "
                "(+02:00); if the clock was never changed, give a fixed --timezone such as +01:00."
            )
        return np.where(aware, times, in_utc[codes])

    def _saw(self, aware: bool, clock: bool) -> None:
        self.naive |= not aware
        self.moments |= clock
        self.days |= not clock and len(self.columns) == 1

    def _no_time(self, what: str) -> DataError:
        return DataError(f"'{self.table.origin}': {what} is no time; {EXAMPLE}.")

    def _at(self, block: pd.DataFrame, row: int) -> str:
        return f"{self.table.row} {block.index[row]}"


def _plus(times: np.ndarray, clocks: np.ndarray) -> np.ndarray:
    return np.where(times == NAT, NAT, times + clocks)
