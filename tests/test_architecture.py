"""The laws of the tree: who may import whom, how long things may be, what is never used."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "stonet"

# A module imports only from modules above it. A folder counts as one entry, its members included.
ORDER = [
    "_version", "errors", "machine", "progress", "devices", "crew", "hands", "launch", "config",
    "durations", "geometry", "cf", "field", "clock", "outputs", "archive", "protocols",
    "sources", "datasets",
    "scaling", "sun", "windows", "neighbours", "multipole", "kernel", "joint", "encoder", "texture",
    "stencil", "ridge", "regular", "filling", "linear", "linear_fit", "portrait", "branch",
    "decoder", "expert", "school", "forecaster", "halo", "model",
    "rivals", "zoo", "task", "checkpoint", "run", "session", "state", "tiles", "loss", "feeding",
    "training", "inference", "stream", "hindcast", "metrics", "significance", "interpolation",
    "evaluation", "comparison", "maps", "plots", "experiments", "benchmarks", "doctor", "estimator",
    "console", "report", "serve", "demo", "cli", "__main__",
]  # fmt: skip
NOT_ON_THE_API_PAGE = {"_version", "console", "demo", "cli", "__main__"}  # command line only

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 80

BANNED_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml"}
BANNED_CALLS = {"eval", "exec"}
BANNED_MEMBERS = {"torch.load", "torch.save"}
BANNED_METHODS = {"read_pickle", "to_pickle"}

TYPES_ONLY = {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def module_name(path: Path) -> str:
    """stonet/datasets/wave.py -> "datasets.wave"; a folder's __init__ -> the folder; ours -> ""."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
EVERY_MODULE = pytest.mark.parametrize("module", MODULES, ids=lambda name: name or "__init__")


def family(module: str) -> str:
    return module.partition(".")[0]


def parse(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def running(node: ast.AST, *, lazy: bool = True) -> Iterator[ast.AST]:
    """The nodes below `node` that a program runs; without `lazy`, only those an import runs."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) in TYPES_ONLY:
            yield from running(ast.Module(child.orelse, []), lazy=lazy)
        elif lazy or not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child
            yield from running(child, lazy=lazy)


def imports(tree: ast.Module, module: str, *, lazy: bool = True) -> Iterator[str]:
    """What `module` imports, dotted: "torch.nn", "stonet.field", "stonet.field.Field"."""
    here = ["stonet", *module.split(".")] if module else ["stonet"]
    package = here if MODULES.get(module, Path()).name == "__init__.py" else here[:-1]
    for node in running(tree, lazy=lazy):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *filter(None, [node.module])])
            yield from (f"{source}.{alias.name}" for alias in node.names)


def ours(tree: ast.Module, module: str, *, lazy: bool = True) -> set[str]:
    """The modules of stonet that `module` imports; a name taken from stonet itself is that name."""
    found = set()
    for dotted in imports(tree, module, lazy=lazy):
        head, *rest = dotted.split(".")
        if head == "stonet" and rest != ["__version__"] and rest[:1] != ["_version"]:
            prefixes = (".".join(rest[:length]) for length in range(len(rest), 0, -1))
            found.add(next((name for name in prefixes if name in MODULES), ".".join(rest)))
    return found


def test_order_names_every_module():
    assert {family(module) for module in MODULES if module} <= set(ORDER)


@EVERY_MODULE
def test_imports_only_from_above(module: str):
    if not module:
        assert not ours(parse(module), module, lazy=False), "stonet/__init__.py must import lazily"
        return
    rank = ORDER.index(family(module))
    others = {name for name in ours(parse(module), module) if family(name) != family(module)}
    wrong = {name for name in others if family(name) not in ORDER[:rank]}
    assert not wrong, f"stonet.{module} imports {sorted(wrong)}, not above it in ORDER"


def test_members_of_a_family_do_not_import_in_circles():
    graph = {
        module: {name for name in ours(parse(module), module) if family(name) == family(module)}
        for module in MODULES
        if module
    }
    graphlib.TopologicalSorter(graph).prepare()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from stonet.field import Field", {"field"}),
        ("import stonet.errors as e\nimport torch", {"errors"}),
        ("def f():\n    from stonet import geometry", {"geometry"}),
        ("from stonet import __version__", set()),
        ("from stonet import read", {"read"}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import stonet.field", set()),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import stonet.field", {"field"}),
        ("from .errors import DataError\nfrom . import field", {"errors", "field"}),
    ],
)
def test_imports_are_found_in_every_form(source: str, expected: set[str]):
    assert ours(ast.parse(source), "geometry") == expected


def test_imports_inside_functions_are_lazy():
    source = "import stonet.errors\ndef __getattr__(name):\n    import stonet.field"
    assert ours(ast.parse(source), "", lazy=False) == {"errors"}


@pytest.mark.parametrize("folder", ["stonet", "tests", "docs"])
def test_no_file_is_long(folder: str):
    lengths = {path: len(path.read_text().splitlines()) for path in (ROOT / folder).rglob("*.py")}
    long = {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > MAX_FILE_LINES}
    assert not long, f"over {MAX_FILE_LINES} lines: {long}"


@EVERY_MODULE
def test_no_function_is_long(module: str):
    functions = (
        node
        for node in ast.walk(parse(module))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    lengths = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    long = {name: length for name, length in lengths.items() if length > MAX_FUNCTION_LINES}
    assert not long, f"over {MAX_FUNCTION_LINES} lines in stonet.{module}: {long}"


def banned(tree: ast.Module, module: str = "") -> set[str]:
    """What could run code from a file, or from a string."""
    found = {
        dotted
        for dotted in imports(tree, module)
        if family(dotted) in BANNED_MODULES or dotted in BANNED_MEMBERS
    }
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) if name in BANNED_CALLS:
                found.add(name)
            case ast.Attribute(attr=name) if (
                name in BANNED_METHODS or ast.unparse(node) in BANNED_MEMBERS
            ):
                found.add(ast.unparse(node))
            case ast.keyword(arg="allow_pickle", value=value) if ast.unparse(value) != "False":
                found.add("allow_pickle")
    return found


@EVERY_MODULE
def test_nothing_that_runs_foreign_code(module: str):
    assert not banned(parse(module), module)


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "def f():\n    from yaml import safe_load",
        "from torch import load",
        "torch.save(model, path)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
        "eval('1')",
        "run = exec",
        "table.to_pickle(path)",
    ],
)
def test_the_ban_bites(source: str):
    assert banned(ast.parse(source))


def test_the_ban_spares_what_is_harmless():
    assert not banned(ast.parse("model.eval()\nnp.load(path, allow_pickle=False)\njson.load(file)"))


@pytest.mark.parametrize("module", ["stonet", *(["stonet.cli"] if "cli" in MODULES else [])])
def test_torch_is_imported_only_when_needed(module: str):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr or f"`import {module}` imports torch: help gets slow"


def test_the_api_page_shows_every_module():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    shown = {line.split()[-1] for line in page.splitlines() if ".. automodule:: " in line}
    public = {name for name in ORDER if name in MODULES} - NOT_ON_THE_API_PAGE
    missing = {f"stonet.{name}" for name in public} - shown
    assert not missing, f"docs/api.md needs an automodule block for each of {sorted(missing)}"
