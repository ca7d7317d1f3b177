"""Every public function, method and class explains its parameters, and more than by their name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.paths import ROOT

PACKAGE = ROOT / "stonet"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
ENTRY = re.compile(r"    (\*{0,2}\w[\w, *]*?)(?: \(.*\))?:(?: (.*))?")
SKIPPED = r"overload|\.setter|\.command|\.callback"  # options explain the last two

TREES = {path: ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
CLASSES: dict[str, list[ast.ClassDef]] = {}
for node in (node for tree in TREES.values() for node in ast.walk(tree)):
    if isinstance(node, ast.ClassDef):
        CLASSES.setdefault(node.name, []).append(node)


def entries(node: ast.AST) -> dict[str, str]:
    """The parameters that a docstring explains, and the first line on each."""
    inside, found = False, {}
    for line in (ast.get_docstring(node) or "").splitlines():  # type: ignore[arg-type]
        if re.fullmatch(r"\w+:", line):
            inside = line == "Args:"
        elif inside and (entry := ENTRY.fullmatch(line)):
            names = (name.strip().lstrip("*") for name in entry[1].split(","))
            found |= dict.fromkeys(names, entry[2] or "")
    return found


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    given = function.args
    listed = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    names = [part.arg for part in listed if part]
    return [name for name in names if name not in ("self", "cls") and name[0] != "_"]


def decorators(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return " ".join(map(ast.unparse, node.decorator_list))


def base_names(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases]


def ancestors(node: ast.ClassDef) -> Iterator[ast.ClassDef]:
    """The classes of stonet that a class is derived from, by their names."""
    for base in (base for name in base_names(node) for base in CLASSES.get(name, [])):
        if base is not node:
            yield base
            yield from ancestors(base)


def constructor(node: ast.ClassDef) -> list[str]:
    """The parameters of a constructor that is written out, of a dataclass or of a named tuple."""
    for part in node.body:
        if isinstance(part, FUNCTIONS) and part.name == "__init__":
            return parameters(part)
    if "dataclass" not in decorators(node) and "NamedTuple" not in base_names(node):
        return []
    declared = {
        part.target.id: ast.unparse(part)
        for part in node.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }
    inner = ("ClassVar", "init=False")
    return [n for n, text in declared.items() if n[0] != "_" and not any(i in text for i in inner)]


def methods(node: ast.ClassDef) -> set[str]:
    return {part.name for part in node.body if isinstance(part, FUNCTIONS)}


def protocols(tree: ast.Module | None) -> Iterator[ast.ClassDef]:
    for node in tree.body if tree else ():
        if isinstance(node, ast.ClassDef) and "Protocol" in base_names(node):
            yield node


def unexplained(tree: ast.Module, path: Path = Path()) -> Iterator[str]:
    """Names of public objects of a module with a parameter that nobody explains.

    An explanation may stand at the interface: at a base class, at a protocol of the module, or,
    for the functions of a module, at a protocol of its package. The options of a command explain
    its parameters.
    """
    package = TREES.get(path.parent / "__init__.py") if path.name != "__init__.py" else None
    interface = {name for protocol in protocols(package) for name in methods(protocol)}
    if path.parent.name == "cli":
        interface.add(path.stem)
    for node in tree.body:
        if isinstance(node, FUNCTIONS) and node.name not in interface:
            yield from lacking(node, parameters(node))
        elif isinstance(node, ast.ClassDef) and node.name[0] != "_":
            parents = list(ancestors(node))
            inherited = {name for parent in parents for name in entries(parent)}
            yield from lacking(node, [n for n in constructor(node) if n not in inherited])
            known = set[str]().union(*map(methods, [*parents, *protocols(tree)]))
            is_interface = "Protocol" in base_names(node)
            for part in (part for part in node.body if isinstance(part, FUNCTIONS)):
                if is_interface or part.name not in known:
                    yield from lacking(part, parameters(part), f"{node.name}.")


def lacking(
    node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, names: list[str], prefix: str = ""
) -> Iterator[str]:
    explained, skipped = entries(node), re.search(SKIPPED, decorators(node))
    if node.name[0] == "_" or skipped:
        return
    missing = [name for name in names if not says_more(name, explained.get(name))]
    if missing or not ast.get_docstring(node):
        yield f"{prefix}{node.name}({', '.join(missing)})"


def says_more(name: str, text: str | None) -> bool:
    """Whether an explanation has other words than the name and articles."""
    if text is None:
        return False
    words = set(re.findall(r"\w+", text.lower())) - {"the", "a", "an"}
    return bool(words - {name.lower(), *name.lower().split("_")})


@pytest.mark.parametrize("path", TREES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_parameter_is_explained(path: Path):
    assert not list(unexplained(TREES[path], path))


@pytest.mark.parametrize(
    "source",
    [
        "def f(x): 'Text.'",
        "def f(x): pass",
        "def f(x):\n    '''Text.\n\n    Args:\n        x: the x.\n    '''",
        "def f(x, y):\n    '''Text.\n\n    Args:\n        x: a number.\n    '''",
        "class A:\n    '''Text.'''\n    def __init__(self, size): pass",
        "class A:\n    '''Text.'''\n    def f(self, size):\n        '''Text.'''",
        "@dataclass\nclass A:\n    '''Text.'''\n    size: int",
        "class A(NamedTuple):\n    '''Text.'''\n    size: int",
    ],
)
def test_an_unexplained_parameter_is_found(source: str):
    assert list(unexplained(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "def _f(x): pass",
        "def f(): 'Text.'",
        "def f(x):\n    '''Text.\n\n    Args:\n        x: in metres.\n    '''",
        "def f(*x, **y):\n    '''Text.\n\n    Args:\n        *x: one.\n        **y: two.\n    '''",
        "class A:\n    '''Text.\n\n    Args:\n        size, width: in pixels.\n    '''\n"
        "    def __init__(self, size, width): pass",
    ],
)
def test_an_explained_parameter_is_accepted(source: str):
    assert not list(unexplained(ast.parse(source)))
