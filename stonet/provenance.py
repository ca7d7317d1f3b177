"""Which code a result came from: a hash of the functions and classes that it depends on.

From a name on, everything that it uses is followed through the package: the names in its body, and
in theirs. A class counts whole. Comments, docstrings and empty lines do not count, and neither do
modules whose product is hashed by itself (data and configuration) or that only show results.
"""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent
NOT_FOLLOWED = {
    "stonet.config",  # a configuration is hashed as it was resolved
    "stonet.sources",  # data are hashed as they were read
    "stonet.datasets",
    "stonet.zoo",  # names all models; the one that is used is a root of its own
    "stonet.experiments.cells",  # a question is hashed as it is asked
    "stonet.plots",
    "stonet.maps",
    "stonet.cf",
    "stonet.checkpoint",
    "stonet.errors",
    "stonet.progress",
    "stonet.provenance",
    "stonet.__version__",
}
ALWAYS = "<runs on import>"  # top-level statements that bind no name
Names = frozenset[tuple[str, str]]


@cache
def code_hash(*roots: str, apart: tuple[str, ...] = (), package: Path = PACKAGE) -> str:
    """SHA-256 of all that these need, such as "stonet.comparison.train".

    `apart`: modules that the roots name, but that are known not to be used.
    """
    found = sorted(reached(*roots, apart=apart, package=package))
    digest = hashlib.sha256()
    for module, name in found:
        digest.update(f"{module}.{name}\n{_module(package, module).text(name)}\n".encode())
    return digest.hexdigest()


@cache
def reached(*roots: str, apart: tuple[str, ...] = (), package: Path = PACKAGE) -> Names:
    """(module, name) of everything in the package that these need, themselves included."""
    seen: set[tuple[str, str]] = set()
    todo = [place for root in roots for place in _places(root, package)]
    while todo:
        place = todo.pop()
        if place in seen:
            continue
        seen.add(place)
        module = _module(package, place[0])
        todo += [(place[0], name) for name in module.always]
        for needed in module.needs(place[1]):
            if needed.startswith("stonet."):
                todo += [found for found in _places(needed, package) if found[0] not in apart]
            else:
                todo.append((place[0], needed))
    return frozenset(seen)


def _places(dotted: str, package: Path) -> list[tuple[str, str]]:
    """Where "stonet.comparison.train" is defined; all of a module where it is one."""
    if any(dotted == cut or dotted.startswith(f"{cut}.") for cut in NOT_FOLLOWED):
        return []
    if _path(package, dotted) is not None:
        return [(dotted, name) for name in _module(package, dotted).names]
    module, _, name = dotted.rpartition(".")
    if _path(package, module) is None or name not in _module(package, module).names:
        return []  # not ours, such as __version__
    return [(module, name)]


def _path(package: Path, module: str) -> Path | None:
    place = package.joinpath(*module.split(".")[1:])
    files = (place.with_suffix(".py"), place / "__init__.py")
    return next((file for file in files if file.is_file() and module), None)


@cache
def _module(package: Path, module: str) -> _Module:
    path = _path(package, module)
    assert path is not None  # asked for before
    return _Module(path.read_text(encoding="utf-8"))


class _Module:
    """A file's top-level names, what each of them uses, and its text without comments."""

    def __init__(self, source: str) -> None:
        tree = ast.parse(source)
        self.lines = _bare(source, tree)
        self.names: dict[str, list[ast.stmt]] = {}
        self.imported: dict[str, str] = {}
        for node in tree.body:
            for alias, dotted in _imports(node):
                self.imported[alias] = dotted
            for name in _defined(node):
                self.names.setdefault(name, []).append(node)
        self.names |= {name: [] for name in self.imported if name not in self.names}
        self.always = [ALWAYS] if ALWAYS in self.names else []

    def needs(self, name: str) -> set[str]:
        """Names of this module, and dotted ones of others, that a name uses."""
        if name in self.imported and not self.names[name]:
            return {self.imported[name]}
        found = set()
        for node in (inner for top in self.names[name] for inner in ast.walk(top)):
            if isinstance(node, ast.Name) and node.id in self.names:
                found.add(node.id)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                found |= {dotted for _, dotted in _imports(node)}
        return found

    def text(self, name: str) -> str:
        """The lines that define a name."""
        found = []
        for node in self.names[name]:
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
            found += self.lines[first - 1 : node.end_lineno]
        return "\n".join(line for line in found if line)


def _imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    """(name here, dotted name there) of what a statement takes from the package."""
    if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "stonet":
        yield from ((a.asname or a.name, f"{node.module}.{a.name}") for a in node.names)
    if isinstance(node, ast.Import):
        yield from ((a.asname, a.name) for a in node.names if a.asname and "stonet." in a.name)


def _defined(node: ast.stmt) -> list[str]:
    """The names that a top-level statement binds; ALWAYS for one that just runs."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
    typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if isinstance(node, (ast.Import, ast.ImportFrom)) or typing_only or docstring:
        return []
    return [ALWAYS]


def _bare(source: str, tree: ast.Module) -> list[str]:
    """The lines without comments and docstrings; empty where nothing is left."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in (n for n in ast.walk(tree) if isinstance(n, owners) and n.body):
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            for row in range(first.lineno, (first.end_lineno or first.lineno) + 1):
                lines[row - 1] = ""
    return [line.rstrip() for line in lines]
