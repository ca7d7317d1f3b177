"""Sphinx: Markdown pages and docstrings, built offline and strictly (`make docs`)."""

import re
import sys
from pathlib import Path

import stonet

sys.path.insert(0, str(Path(__file__).parent))
from render import write_pages

project = "stonet"
author = "the stonet authors"
copyright = "2026, the stonet authors"
version = release = stonet.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
exclude_patterns = ["_build", "_generated", "gallery"]
default_role = "code"

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_typehints_format = "short"
autodoc_type_aliases = {
    name: name for name in ("Indices", "StationLabels", "Time", "TimeLabels", "Times")
}
autodoc_preserve_defaults = True
autodoc_default_options = {"exclude-members": "trusted"}
python_maximum_signature_line_length = 90
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"stonet {release}"

SECTION = re.compile(r"(Args|Attributes|Examples?|Note|Raises|Returns|Yields):$", re.MULTILINE)
MARKUP = re.compile(r"(`[^`]+`)|([|*]|_(?!\w))")  # code, to be kept; signs, to be escaped


def plain(app, what, name, obj, options, lines):
    """Our docstrings are plain text with `code` and indented equations; make reST of them.

    Indented blocks outside a Google section become literal, and what reST would take for
    markup elsewhere (bars, stars, trailing underscores) is escaped.
    """
    blocks, in_section = [], False
    for block in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")):
        indented = block.startswith(" ")
        in_section = in_section if indented else bool(SECTION.match(block))
        if indented and not in_section:
            block = "::\n\n" + block
        elif ">>>" not in block:
            block = MARKUP.sub(lambda match: match[1] or "\\" + match[2], block)
        blocks.append(block)
    lines[:] = [*"\n\n".join(blocks).splitlines(), ""]


def setup(app):
    write_pages(Path(__file__).parent / "_generated")
    app.connect("autodoc-process-docstring", plain, priority=400)  # before napoleon, at 500
