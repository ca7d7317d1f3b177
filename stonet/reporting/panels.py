"""Panels: drawings that become a figure side by side, or a page below each other.

A page is one HTML file that needs no network: each panel is an SVG as wide as the screen allows,
and symbols show their values under the pointer, or when they are tapped.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stonet.errors import UsageError
from stonet.plotting.fields import Tips
from stonet.plotting.figures import DPI
from stonet.reporting.figures import write_figure
from stonet.system.atomic import disk_errors_explained, write_atomic

SUFFIXES = (".png", ".svg", ".html")
COLUMNS = 2  # of panels in a figure
SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
TEXT_ROOM = 0.5  # inches for the title of a figure

PAGE = Markup("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 80rem; padding: 0.5rem;
  background: #fff; color: #222; }}
h1 {{ font-size: 1.2rem; }}
main {{ display: flex; flex-wrap: wrap; gap: 0.5rem; justify-content: center; }}
figure {{ flex: 1 1 22rem; max-width: 40rem; margin: 0; min-width: 0; }}
svg {{ width: 100%; height: auto; display: block; }}
#value {{ position: fixed; bottom: 0; left: 0; right: 0; background: #222; color: #fff;
  padding: 0.4rem 0.8rem; }}
#value:empty {{ display: none; }}
@media print {{ #value {{ display: none; }} figure {{ break-inside: avoid; }} }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{caption}</p>
<main>
{figures}
</main>
<output id="value" aria-live="polite"></output>
<script>
addEventListener("click", event => {{
  const symbol = event.target.closest && event.target.closest("[data-value]");
  document.getElementById("value").textContent = symbol ? symbol.dataset.value : "";
}});
</script>
</body>
</html>
""")


@dataclass(frozen=True)
class Panel:
    """A drawing on axes of its own.

    Args:
        name: for screen readers.
        size: width and height in inches.
        draw: draws on axes, and returns the texts of its symbols.
    """

    name: str
    size: tuple[float, float]
    draw: Callable[[Axes], Tips]


def check_panels(path: Path) -> None:
    """Refuse a name that no panels can be written to, before any work is done.

    Args:
        path: of the file.

    Raises:
        UsageError: the suffix is none of a figure or page, or the folder does not exist.
    """
    if path.suffix.lower() not in SUFFIXES or not path.parent.is_dir():
        raise UsageError(
            f"Cannot draw '{path}'; expected a .png, .svg or .html file in an existing folder."
        )


def write_panels(panels: Sequence[Panel], path: Path, title: str, caption: str = "") -> None:
    """Write panels atomically, in the format of the suffix.

    Args:
        panels: at least one.
        path: of a .png, .svg or .html file.
        title: above all panels.
        caption: below the title of a page.
    """
    if path.suffix.lower() == ".html":
        with disk_errors_explained(path):
            write_atomic(path, page(panels, title, caption).encode())
    else:
        write_figure(figure_of(panels, title), path)


def figure_of(panels: Sequence[Panel], title: str = "") -> Figure:
    """All panels in one figure, at most two beside each other.

    Args:
        panels: at least one.
        title: above them.
    """
    columns = min(COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    width = max(panel.size[0] for panel in panels)
    height = max(panel.size[1] for panel in panels)
    size = (width * columns, height * rows + TEXT_ROOM * bool(title))
    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, panel in zip(grid, panels, strict=False):
        panel.draw(axes)
    for axes in grid[len(panels) :]:
        axes.remove()
    if title:
        figure.suptitle(title, fontsize=12, parse_math=False, wrap=True)
    return figure


def page(panels: Sequence[Panel], title: str, caption: str = "") -> str:
    """One HTML page with all panels, which needs no network.

    Args:
        panels: at least one.
        title: of the page.
        caption: below the title.
    """
    figures = Markup("\n").join(
        Markup("<figure>{}</figure>").format(drawing(panel, number))
        for number, panel in enumerate(panels)
    )
    return str(PAGE.format(title=title, caption=caption, figures=figures))


def drawing(panel: Panel, number: int = 0) -> Markup:
    """A panel as an SVG element whose symbols have their values as titles.

    Args:
        panel: what is drawn.
        number: of the panel, which makes its identifiers unique in a page.
    """
    figure = Figure(figsize=panel.size, dpi=DPI, layout="constrained")
    texts: dict[str, list[str]] = {}
    for artist, values in panel.draw(figure.subplots()):
        name = f"values-{number}-{len(texts)}"
        artist.set_gid(name)
        texts[name] = values
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", dpi=DPI, metadata={"Date": None})
    root = ElementTree.fromstring(buffer.getvalue())
    for group in root.iter(f"{{{SVG}}}g"):
        symbols = list(group.iter(f"{{{SVG}}}use"))
        values = texts.get(group.get("id", ""), [])
        if len(symbols) == len(values):  # those outside of the axes are not drawn
            _name_symbols(symbols, values)
    for metadata in root.findall(f"{{{SVG}}}metadata"):
        root.remove(metadata)
    for size in ("width", "height"):
        root.attrib.pop(size, None)
    root.set("role", "img")
    root.set("aria-label", panel.name)
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _name_symbols(symbols: Sequence[ElementTree.Element], values: Sequence[str]) -> None:
    """Give each symbol its value: as a title for the pointer, as an attribute for a tap."""
    for symbol, value in zip(symbols, values, strict=True):
        symbol.set("data-value", value)
        ElementTree.SubElement(symbol, f"{{{SVG}}}title").text = value
