"""The values of a table: columns of numbers, kept as float32; text among them is named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float32

from stonet.errors import DataError
from stonet.io.tables.columns import Table, listed

if TYPE_CHECKING:
    import pandas as pd

MARKS = (  # what stands for a value that is missing
    "", "NA", "N/A", "n/a", "<NA>", "#N/A", "#N/A N/A", "#NA", "NaN", "nan", "-NaN", "-nan", "NULL",
    "null", "None", "NaT", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN", "-", "--", "M",
)  # fmt: skip
SWITCHES = {"true": "1", "false": "0"}


class Numbers:
    """Collects some columns of a table's blocks; columns of text are left out.

    Args:
        table: where they come from.
        columns: their names.
        asked: those that were asked for; text in them is an error, however much there is.
    """

    def __init__(self, table: Table, columns: Iterable[str], asked: Iterable[str] = ()) -> None:
        self.table, self.asked = table, frozenset(asked)
        self.kept: dict[str, list[np.ndarray]] = {name: [] for name in columns}
        self.seen: set[str] = set()  # with at least one number
        self.texts: list[str] = []

    def add(self, block: pd.DataFrame, rows: Bool[np.ndarray, " row"]) -> int:
        """Take these rows of a block; returns how many bytes they take."""
        for name in list(self.kept):
            numbers, text = to_numbers(block[name], self.table.decimal)
            if text.any() and self._is_label(name, numbers, text):
                self.texts.append(name)
                del self.kept[name]
                continue
            if text.any():
                raise self._not_a_number(name, block, text)
            if not np.isnan(numbers).all():
                self.seen.add(name)
            with np.errstate(over="ignore"):  # infinite then, and judged as such
                numbers = numbers.astype(np.float32)
            self.kept[name].append(numbers if rows.all() else numbers[rows])
        return sum(parts[-1].nbytes for parts in self.kept.values() if parts)

    def _not_a_number(self, name: str, block: pd.DataFrame, text: np.ndarray) -> DataError:
        row = int(text.argmax())
        return DataError(
            f"'{self.table.origin}': column '{name}' has {listed([str(block[name].iloc[row])])} in "
            f"{self.table.row} {block.index[row]}; expected a number ({int(text.sum())} such cells "
            "near there). Correct them, leave them empty if they are missing, or choose other "
            "--variables."
        )

    def _is_label(self, name: str, numbers: np.ndarray, text: np.ndarray) -> bool:
        plain = ~np.isnan(numbers)
        return name not in self.asked | self.seen and bool(text.sum() > plain.sum())

    def finish(self) -> tuple[tuple[str, ...], Float32[np.ndarray, "row column"]]:
        """The columns that hold numbers (or were asked for), side by side."""
        names = tuple(name for name in self.kept if name in self.seen or name in self.asked)
        count = sum(map(len, self.kept[names[0]])) if names else 0
        values = np.empty((count, len(names)), np.float32)
        for column, name in enumerate(names):
            values[:, column] = np.concatenate(self.kept.pop(name))
        return names, values

    def notes(self, channels: Mapping[str, tuple[str, str]]) -> tuple[str, ...]:
        """What was left out."""
        empty = [name for name in channels if name in self.kept and name not in self.seen]
        told = []
        if self.texts:
            told.append(f"Columns of text are left out: {listed(self.texts)}.")
        if empty:
            told.append(f"Columns without a value are left out: {listed(empty)}.")
        return tuple(told)


def to_numbers(
    column: pd.Series, decimal: str = "."
) -> tuple[np.ndarray, Bool[np.ndarray, " row"]]:
    """Float64, and where there is text that is no number."""
    import pandas as pd

    if column.dtype.kind in "fiub":  # of NumPy, and of pandas' and arrow's own that know missing
        return column.to_numpy(np.float64, na_value=np.nan), np.zeros(len(column), dtype=bool)
    if column.dtype.kind not in "OUST":
        return np.full(len(column), np.nan), column.notna().to_numpy()
    codes, uniques = pd.factorize(column)  # text is slow; most of it repeats
    texts = pd.Series([str(text).strip() for text in uniques], dtype=object)
    if decimal == ",":
        texts = texts.str.replace(",", ".", regex=False)
    lower = texts.str.lower()
    texts = texts.mask(lower.isin(SWITCHES), lower.map(SWITCHES))
    parsed = pd.to_numeric(texts, errors="coerce").to_numpy(np.float64)
    wrong = np.isnan(parsed) & ~texts.isin(MARKS).to_numpy(bool)
    return np.r_[parsed, np.nan][codes], np.r_[wrong, False][codes]
