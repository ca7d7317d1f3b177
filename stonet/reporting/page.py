"""The page: all sections in one self-contained HTML file, from one template.

Nothing is loaded from anywhere: style, script, pictures and data are in the file, and its content
security policy forbids everything else. Every text is escaped; names of stations and channels are
those of the data, and may hold anything.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from stonet._version import __version__
from stonet.errors import UsageError
from stonet.reporting.blocks import Figures, Json, Section
from stonet.reporting.headline import headline
from stonet.reporting.maps import Canvas
from stonet.reporting.results import Results
from stonet.reporting.sections.common import channels_shown
from stonet.reporting.sections.data import data_section
from stonet.reporting.sections.forecasts import cases_section, maps_section
from stonet.reporting.sections.influence import influence_section
from stonet.reporting.sections.intervals import intervals_section
from stonet.reporting.sections.provenance import provenance_section
from stonet.reporting.sections.scores import scores_section
from stonet.reporting.sections.stations import stations_section
from stonet.reporting.sections.training import training_section
from stonet.reporting.series import encoded_series, stretch
from stonet.system.atomic import write_atomic
from stonet.system.progress import ProgressCallback, ignore_progress

HERE = Path(__file__).parent
TEMPLATE, STYLE, SCRIPT = "page.html", "page.css", "page.js"
SUFFIXES = (".html", ".htm")


def check_page(path: Path) -> None:
    """Refuse a name that no page can be written to, before any work is done.

    Args:
        path: of the page.

    Raises:
        UsageError: the suffix is none of a page, or the folder does not exist.
    """
    if path.suffix.lower() not in SUFFIXES or not path.parent.is_dir() or path.is_dir():
        raise UsageError(
            f"Cannot write '{path}'; expected a name that ends in .html in an existing folder."
        )


def write_page(
    results: Results,
    path: Path,
    title: str | None = None,
    on_progress: ProgressCallback = ignore_progress,
) -> int:
    """Write the page atomically; the number of its bytes.

    Args:
        results: of the model.
        path: of the page.
        title: of the page (None: model and data).
        on_progress: called with the number of finished sections and their total.
    """
    content = render(results, title, on_progress).encode()
    write_atomic(path, content)
    return len(content)


def render(
    results: Results, title: str | None = None, on_progress: ProgressCallback = ignore_progress
) -> str:
    """The page as text.

    Args:
        results: of the model.
        title: of the page (None: model and data).
        on_progress: called with the number of finished sections and their total.
    """
    dataset = results.task.dataset
    held_out = np.isin(np.arange(len(dataset.points)), dataset.unseen)
    canvas = Canvas.of(dataset.points, held_out)
    sections = _sections(results, canvas, on_progress)
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in (STYLE, SCRIPT))
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["identity"] = id
    template = environment.from_string((HERE / TEMPLATE).read_text(encoding="utf-8"))
    return template.render(
        head=headline(results, title),
        sections=sections,
        figures=_numbered(sections),
        background=canvas.background(),
        channels=[name for _, name in channels_shown(results)],
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
        data=_data(results, canvas, sections),
        version=__version__,
    )


def _sections(results: Results, canvas: Canvas, on_progress: ProgressCallback) -> list[Section]:
    """All sections in their order."""
    makers: list[Callable[[], Section]] = [
        lambda: scores_section(results),
        lambda: maps_section(results, canvas),
        lambda: stations_section(results, canvas),
        lambda: cases_section(results, canvas),
        lambda: intervals_section(results),
        lambda: influence_section(results),
        lambda: data_section(results, canvas),
        lambda: training_section(results),
        lambda: provenance_section(results),
    ]
    made = []
    for number, make in enumerate(makers):
        on_progress(number, len(makers), "drawing")
        made.append(make())
    on_progress(len(makers), len(makers), "drawing")
    return made


def _numbered(sections: list[Section]) -> dict[int, str]:
    """A name in the page for each figure, by its identity."""
    found = [
        figure
        for section in sections
        for block in section.blocks
        if isinstance(block, Figures)
        for figure in block.figures
    ]
    return {id(figure): f"figure-{number}" for number, figure in enumerate(found)}


def _data(results: Results, canvas: Canvas, sections: list[Section]) -> Json:
    """What the script reads: values beside the pointer, and the series of all stations."""
    names = _numbered(sections)
    hover: dict[str, object] = {
        names[id(figure)]: figure.drawing.hover
        for section in sections
        for block in section.blocks
        if isinstance(block, Figures)
        for figure in block.figures
        if figure.drawing.hover
    }
    shown = channels_shown(results)
    rows = stretch(results, len(shown))
    series = [encoded_series(results, channel, rows) for channel, _ in shown]
    stations = np.full(len(results.task.dataset.points), -1)
    stations[results.cases.points] = np.arange(len(results.cases.points))
    return {
        "map": canvas.hover(),
        "hover": hover,
        "series": series,
        "seriesOf": stations.tolist(),
        "model": results.model,
    }


def _policy(style: str, script: str) -> str:
    """The content security policy: this style, this script, pictures in the page, nothing else."""

    def digest(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    return (
        f"default-src 'none'; style-src 'sha256-{digest(style)}'; "
        f"script-src 'sha256-{digest(script)}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
