"""A report's page, read back: its elements, its text, its tables and the values of its script."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "br", "img", "link", "input"}


@dataclass
class Element:
    """An element of the page."""

    tag: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text within."""
        return "".join(self.texts)

    def walk(self) -> list[Element]:
        """This element and all within, in their order."""
        return [self, *(e for child in self.children for e in child.walk())]

    def find(self, tag: str, **attributes: str) -> list[Element]:
        """All elements within of this tag and with these attributes ("_" stands for "-")."""
        wanted = {key.rstrip("_").replace("_", "-"): text for key, text in attributes.items()}
        return [
            e
            for e in self.walk()
            if e.tag == tag and all(e.attributes.get(k) == v for k, v in wanted.items())
        ]


class Page(HTMLParser):
    """Parses a page; refuses elements that are not closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("page", {})
        self._open = [self.root]
        self.feed(text)
        self.close()
        assert self._open == [self.root], [element.tag for element in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"repeated attributes of {tag}"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.texts.append(data)

    def section(self, name: str) -> Element:
        """A section by its name."""
        (found,) = self.root.find("section", id=name)
        return found

    @property
    def values(self) -> dict[str, Any]:
        """What the script reads."""
        (found,) = self.root.find("script", id="values")
        content = json.loads(found.text, parse_constant=_refuse)
        assert isinstance(content, dict)
        return content

    def hover(self, title: str, section: str, number: int = 0) -> dict[str, Any]:
        """The values of a figure by its title."""
        figures = [
            figure
            for figure in self.section(section).find("figure")
            if figure.find("figcaption")[0].text == title
        ]
        (plot,) = figures[number].find("div", class_="plot")
        return dict(self.values["hover"][plot.attributes["id"]])


def _refuse(text: str) -> None:
    raise ValueError(f"{text} in JSON")
