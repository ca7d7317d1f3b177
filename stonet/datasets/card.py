"""Cards: what each data set is, where it comes from, under which terms, and what to know of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stonet.data.field import Field


@dataclass(frozen=True)
class File:
    """A file of a data set, by its place under the data set's folder."""

    name: str
    sha256: str | None = None
    size: int | None = None  # in bytes
    url: str | None = None  # where it can be fetched without asking anyone


@dataclass(frozen=True)
class Card:
    """All that there is to say of a data set before it is opened."""

    name: str
    title: str
    kind: str  # in which sense it is real: observed, modelled, reanalysis, simulated
    source: str
    page: str  # where people find it
    licence: str
    channels: str
    shape: str  # time x node x channel
    step: str
    period: str
    split: str
    notes: tuple[str, ...] = ()
    folder: str = ""  # under STONET_DATA or the cache; the name where it is empty
    files: tuple[File, ...] = ()

    @property
    def place(self) -> str:
        return self.folder or self.name

    def rows(self) -> dict[str, str]:
        """The card as a table of two columns."""
        told = ("kind", "source", "page", "licence", "channels", "shape", "step", "period", "split")
        rows = {label: str(getattr(self, label)) for label in told}
        if self.files:
            rows["files"] = f"{len(self.files)} in `{self.place}/`: {self._files()}"
        return rows

    def _files(self) -> str:
        names = [f"`{file.name}`" for file in self.files]
        listed = names if len(names) < 4 else [names[0], "…", names[-1]]
        how = "fetched when needed" if all(file.url for file in self.files) else "to be put there"
        known = ", checked by SHA-256" if all(file.sha256 for file in self.files) else ""
        return f"{', '.join(listed)} ({how}{known})"

    def markdown(self) -> str:
        """The card as the documentation shows it."""
        table = "\n".join(f"| {label} | {text} |" for label, text in self.rows().items())
        notes = "".join(f"\n\n{note}" for note in self.notes)
        return f"## {self.name}\n\n{self.title}.\n\n| | |\n|---|---|\n{table}{notes}\n"


def labelled(field: Field, card: Card, **changes: Any) -> Field:
    """The field with its title, source and licence, and with these parts changed."""
    attrs = {"title": card.title, "source": card.source, "licence": card.licence}
    return Field.trusted(**(vars(field) | {"attrs": {**field.attrs, **attrs}} | changes))
