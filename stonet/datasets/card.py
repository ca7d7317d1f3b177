"""Card: the description of a data set, its origin, licence, shape, split and files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stonet.data.field import Field


@dataclass(frozen=True)
class File:
    """A file of a data set.

    Args:
        name: path below the data set's folder.
        sha256: checksum, if known.
        size: in bytes, if known.
        url: where it can be downloaded without registration.
    """

    name: str
    sha256: str | None = None
    size: int | None = None
    url: str | None = None


@dataclass(frozen=True)
class Card:
    """The description of a data set, as `stonet data info` and the documentation show it.

    Args:
        name: by which it is opened.
        title: one line.
        kind: observed, modelled, reanalysis or simulated.
        source: who made it, and from what.
        page: where it is published.
        licence: its terms.
        channels: names and units.
        shape: time x node x channel.
        step: between two frames.
        period: of time.
        split: into training, validation and test, and unseen points.
        notes: further paragraphs.
        folder: below STONET_DATA or the cache; empty: the name.
        files: that it is read from.
    """

    name: str
    title: str
    kind: str
    source: str
    page: str
    licence: str
    channels: str
    shape: str
    step: str
    period: str
    split: str
    notes: tuple[str, ...] = ()
    folder: str = ""
    files: tuple[File, ...] = ()

    @property
    def folder_name(self) -> str:
        """The folder of its files, below STONET_DATA or the cache."""
        return self.folder or self.name

    def rows(self) -> dict[str, str]:
        """The card as a table of two columns."""
        labels = (
            "kind", "source", "page", "licence", "channels", "shape", "step", "period", "split",
        )  # fmt: skip
        rows = {label: str(getattr(self, label)) for label in labels}
        if self.files:
            rows["files"] = f"{len(self.files)} in `{self.folder_name}/`: {self._files()}"
        return rows

    def _files(self) -> str:
        names = [f"`{file.name}`" for file in self.files]
        shown = names if len(names) < 4 else [names[0], "…", names[-1]]
        how = "fetched when needed" if all(file.url for file in self.files) else "to be put there"
        verified = ", checked by SHA-256" if all(file.sha256 for file in self.files) else ""
        return f"{', '.join(shown)} ({how}{verified})"

    def markdown(self) -> str:
        """The card as a section of the documentation."""
        table = "\n".join(f"| {label} | {text} |" for label, text in self.rows().items())
        notes = "".join(f"\n\n{note}" for note in self.notes)
        return f"## {self.name}\n\n{self.title}.\n\n| | |\n|---|---|\n{table}{notes}\n"


def labelled(field: Field, card: Card, **changes: Any) -> Field:
    """The field with the card's title, source and licence, and with other parts replaced.

    Args:
        field: whose values are from the data set.
        card: of the data set.
        **changes: attributes of Field to replace.
    """
    attrs = {"title": card.title, "source": card.source, "licence": card.licence}
    return Field.trusted(**(vars(field) | {"attrs": {**field.attrs, **attrs}} | changes))
