"""The layers of the package, the size of its parts, and what it must never use."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.paths import ROOT

PACKAGE = ROOT / "stonet"

# What each package may import beside itself, `errors`, `config` and `_version`.
LAYERS = {
    "system": [],
    "data": ["system"],
    "graph": ["data"],
    "io": ["data", "system"],
    "datasets": ["io", "data", "system"],
    "operators": ["graph", "data", "system"],
    "linear": ["graph", "data", "system"],
    "models": ["operators", "linear", "graph", "data", "system"],
    "training": ["models", "linear", "graph", "data", "system"],
    "calibration": ["training", "models", "graph", "data", "system"],
    "inference": ["calibration", "training", "models", "io", "graph", "data", "system"],
    "export": ["training", "models", "operators", "linear", "graph", "data", "system"],
    "evaluation": ["calibration", "training", "models", "linear", "graph", "data", "system"],
    "plotting": ["evaluation", "data"],
    "quality": ["io", "plotting", "graph", "data"],
}
LAYERS["estimator"] = [name for name in LAYERS if name not in ("plotting", "quality")]
LAYERS["reporting"] = [name for name in LAYERS if name != "quality"]
LAYERS["experiments"] = [
    name for name in LAYERS if name not in ("inference", "quality", "reporting", "estimator")
]
LAYERS["serving"] = [
    *("inference", "calibration", "training", "plotting", "models", "io", "graph", "data", "system")
]
LAYERS["cli"] = list(LAYERS)
FREE = {"errors", "config", "_version"}  # everyone may import these
UPWARD = {  # methods such as Field.to_csv and Field.plot, imported when they are called
    "data.field": {"io.write", "plotting.fields"},
    "data.quantile_field": {"io.write_quantiles", "plotting.fields"},
    "estimator": {"reporting.plot_methods"},
}

MAX_FILE_LINES = 400  # besides docstrings, which must not be short to keep a file short
MAX_FUNCTION_LINES = 80
MAX_ROOT_FILES = 6

BANNED_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml"}
BANNED_CALLS = {"eval", "exec"}
BANNED_MEMBERS = {"torch.load", "torch.save"}
BANNED_METHODS = {"read_pickle", "to_pickle"}


def module_name(path: Path) -> str:
    """stonet/datasets/wave.py -> "datasets.wave"; an __init__ -> its folder; ours -> ""."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
PACKAGES = sorted({path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE})
EVERY_MODULE = pytest.mark.parametrize("module", MODULES, ids=lambda name: name or "__init__")


def parse(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def executed(node: ast.AST, *, lazy: bool = True) -> Iterator[ast.AST]:
    """The nodes that a program executes; without `lazy`, only those that an import executes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            yield from executed(ast.Module(child.orelse, []), lazy=lazy)
        elif lazy or not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child
            yield from executed(child, lazy=lazy)


def imports(tree: ast.Module, *, lazy: bool = True) -> set[str]:
    """What is imported, dotted: "torch.nn", "stonet.data.field.Field"."""
    found = set()
    for node in executed(tree, lazy=lazy):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def imported_modules(tree: ast.Module, *, lazy: bool = True) -> set[str]:
    """The modules of stonet among them: "data.field"."""
    found = set()
    for dotted in imports(tree, lazy=lazy):
        head, *rest = dotted.split(".")
        if head == "stonet":
            prefixes = (".".join(rest[:length]) for length in range(len(rest), 0, -1))
            found.add(next((name for name in prefixes if name in MODULES), ".".join(rest)))
    return found


def package_of(module: str) -> str:
    return module.partition(".")[0]


def forbidden(tree: ast.Module, package: str) -> set[str]:
    """Imports that the table of layers does not allow a package."""
    allowed = {package, *LAYERS.get(package, LAYERS), *FREE}
    return {name for name in imported_modules(tree) if package_of(name) not in allowed}


@EVERY_MODULE
def test_imports_follow_the_layers(module: str):
    if not module:
        found = imported_modules(parse(module), lazy=False)
        assert found <= {"_version", "_version.__version__"}, "stonet/__init__.py imports lazily"
    elif package_of(module) not in FREE:
        assert forbidden(parse(module), package_of(module)) == UPWARD.get(module, set())
    else:
        assert {package_of(name) for name in imported_modules(parse(module))} <= FREE


@pytest.mark.parametrize(
    ("source", "package"),
    [
        ("from stonet.models.stonet import STONetwork", "io"),
        ("import stonet.training.trainer", "quality"),
        ("def f():\n    from stonet.evaluation import scoring", "inference"),
        ("from stonet.experiments import EXPERIMENTS", "evaluation"),
        ("from stonet import estimator", "models"),
    ],
)
def test_an_import_from_a_higher_layer_is_found(source: str, package: str):
    assert forbidden(ast.parse(source), package)


def test_imports_for_types_only_are_free():
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import stonet.cli"
    assert not forbidden(ast.parse(source), "data")


def test_modules_do_not_import_in_circles():
    graph = {module: imported_modules(parse(module), lazy=False) for module in MODULES if module}
    graphlib.TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_every_package_introduces_itself(package: Path):
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
    assert docstring and len(docstring.split()) >= 8


def test_the_root_holds_few_files():
    assert len(list(PACKAGE.glob("*.py"))) <= MAX_ROOT_FILES


def lines_besides_docstrings(source: str) -> int:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, documented)]
    docstrings = [node.body[0] for node in nodes if ast.get_docstring(node) is not None]
    count = sum((part.end_lineno or 0) - part.lineno + 1 for part in docstrings)
    return len(source.splitlines()) - count


@pytest.mark.parametrize("folder", ["stonet", "tests", "docs", "benchmarks"])
def test_no_file_is_long(folder: str):
    files = (ROOT / folder).rglob("*.py")
    lengths = {path: lines_besides_docstrings(path.read_text()) for path in files}
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


def methods(tree: ast.Module, name: str = "") -> Iterator[ast.FunctionDef]:
    """The methods of all classes of a module, or of one."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and name in ("", node.name):
            yield from (child for child in node.body if isinstance(child, ast.FunctionDef))


INTERFACE = {method.name for method in methods(parse("models.forecaster"), "Forecaster")}


@pytest.mark.parametrize("module", [name for name in MODULES if package_of(name) == "models"])
def test_what_a_forecaster_takes_and_gives_is_typed(module: str):
    for method in methods(parse(module)):
        if method.name in INTERFACE:
            annotations = [ast.unparse(part.annotation) for part in method.args.args[1:]
                           if part.annotation]  # fmt: skip
            returned = ast.unparse(method.returns) if method.returns else ""
            assert "Any" not in " ".join([*annotations, returned]), method.name


def banned(tree: ast.Module) -> set[str]:
    """What could run code from a file, or from a string."""
    found = {
        dotted
        for dotted in imports(tree)
        if package_of(dotted) in BANNED_MODULES or dotted in BANNED_MEMBERS
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
def test_nothing_runs_foreign_code(module: str):
    assert not banned(parse(module))


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
def test_banned_calls_are_found(source: str):
    assert banned(ast.parse(source))


def test_harmless_calls_are_not_banned():
    assert not banned(ast.parse("model.eval()\nnp.load(path, allow_pickle=False)\njson.load(file)"))


@pytest.mark.parametrize("module", ["stonet", "stonet.cli"])
def test_torch_is_imported_only_when_needed(module: str):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr or f"`import {module}` imports torch: help gets slow"
