"""What a mutant changes: a function, and what is taken out of it.

A function is named by the end of its dotted name, as far as one alone ends so: ``Journal._won``, or
``journal.judge``; a module, a class or a script in Lua is named in the same way. What is there is
named by a part of its text, as `ast.unparse` writes it. So code may move, or be formatted in
another way, and the mutants stay as they are. A script in Lua is changed by whole lines.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from tests.support.servers import ROOT

_PACKAGES = ("engine", "consumers")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_CONDITIONS = (ast.If, ast.IfExp, ast.While)
_LISTS = ("args", "keywords", "elts", "ifs")


class NotThere(Exception):
    """A mutant cannot be made: a function, or the place in it, is not there exactly once."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of the product; see `without`, `never`, `always`, `put` and `text`."""

    kind: Literal["without", "never", "always", "put", "text"]
    where: str
    what: str
    new: str = ""

    @property
    def path(self) -> str:
        """The file that is changed, from the root of the tree."""
        return _place(self.where)[0]

    def made(self, source: str) -> str:
        """Return the text of `path` with the change.

        Raises
        ------
        NotThere
            What is to be changed is not there exactly once.
        """
        if self.kind == "text" or self.where.endswith(".lua"):
            return self._made_in_text(source)
        module = ast.parse(source)
        within = dict(_definitions(module)).get(_place(self.where)[1], module)
        sites = [site for site in _sites(within) if self._is_at(site)]
        inner = [a for a in sites if ast.unparse(a.node) == self.what] or [
            a for a in sites if not any(b is not a and a.holds(b) for b in sites)
        ]
        if len(inner) != 1:
            raise NotThere(f"{self.where} has {len(inner)} times: {self.kind} {self.what}")
        self._change(inner[0])
        return ast.unparse(ast.fix_missing_locations(module))

    def _made_in_text(self, source: str) -> str:
        if source.count(self.what) != 1:
            raise NotThere(f"{self.where} has {source.count(self.what)} times: {self.what}")
        if self.kind == "text":
            return source.replace(self.what, self.new)
        line = next(line for line in source.splitlines() if self.what in line)
        never = re.sub(r"\bif .* then\b", "if false then", line)
        return source.replace(line, never if self.kind == "never" else "")

    def _is_at(self, site: _Site) -> bool:
        if self.kind == "put":
            one = ast.expr if isinstance(_parsed(self.new)[0], ast.expr) else ast.stmt
            (what,) = _parsed(self.what)
            return isinstance(site.node, one) and ast.unparse(site.node) == ast.unparse(what)
        if self.kind == "without":
            return site.is_removable and self.what in ast.unparse(site.node)
        return site.is_condition and self.what in ast.unparse(site.node)

    def _change(self, site: _Site) -> None:
        if self.kind == "put":
            site.replace(*_parsed(self.new))
        elif self.kind == "without":
            site.remove()
        else:
            site.replace(ast.Constant(self.kind == "always"))


def without(where: str, what: str) -> Edit:
    """Return the removal of a statement, or of one side of ``and``, ``or``, ``|`` or ``+``."""
    return Edit("without", where, what)


def never(where: str, what: str) -> Edit:
    """Return what makes a condition false."""
    return Edit("never", where, what)


def always(where: str, what: str) -> Edit:
    """Return what makes a condition true."""
    return Edit("always", where, what)


def put(where: str, what: str, new: str) -> Edit:
    """Return one expression in place of another, or one statement, which is named whole."""
    return Edit("put", where, what, new)


def text(where: str, what: str, new: str = "") -> Edit:
    """Return one exact text in place of another: in a script, which is in Lua."""
    return Edit("text", where, what, new)


def made(edits: tuple[Edit, ...]) -> dict[str, str]:
    """Return the changed files of a mutant by their paths from the root of the tree.

    Raises
    ------
    NotThere
        One of the changes cannot be made.
    """
    texts: dict[str, str] = {}
    for edit in edits:
        path = edit.path
        texts[path] = edit.made(texts.get(path) or (ROOT / path).read_text(encoding="utf-8"))
    return texts


def named_tests(name: str) -> list[str]:
    """Return what pytest calls the tests of a name; ``part_of_the_path::name`` picks among them."""
    part, _, function = name.rpartition("::")
    return [
        f"{path}::{function}"
        for path, source in _sources("tests").items()
        if f"def {function}(" in source and part in path
    ]


@dataclass(frozen=True, slots=True)
class _Site:
    """A node, and where it stands in the one above; ``above``: the place of that one."""

    above: _Site | None
    parent: ast.AST
    field: str
    index: int | None
    node: ast.AST

    @property
    def is_removable(self) -> bool:
        if isinstance(self.node, ast.stmt):
            return not isinstance(self.node, _DEFINITIONS)
        if isinstance(self.parent, ast.BinOp):
            return isinstance(self.node, ast.expr)
        return self.field in _LISTS or (
            isinstance(self.parent, ast.BoolOp) and self.field == "values"
        )

    @property
    def is_condition(self) -> bool:
        return isinstance(self.parent, _CONDITIONS) and self.field == "test"

    def holds(self, other: _Site) -> bool:
        return any(node is other.node for node in ast.walk(self.node))

    def replace(self, *nodes: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, *nodes)
        else:
            getattr(self.parent, self.field)[self.index : self.index + 1] = nodes

    def remove(self) -> None:
        if isinstance(self.node, ast.stmt):
            self.replace(ast.Pass())
        elif isinstance(self.parent, ast.BinOp) and self.above is not None:
            self.above.replace(self.parent.right if self.field == "left" else self.parent.left)
        else:
            del getattr(self.parent, self.field)[self.index]


def _sites(parent: ast.AST, above: _Site | None = None) -> Iterator[_Site]:
    for field, value in ast.iter_fields(parent):
        for index, node in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(node, ast.AST):
                at = index if isinstance(value, list) else None
                site = _Site(above, parent, field, at, node)
                yield site
                yield from _sites(node, site)


def _parsed(source: str) -> list[ast.expr] | list[ast.stmt]:
    statements = ast.parse(source).body
    if len(statements) == 1 and isinstance(statements[0], ast.Expr):
        return [statements[0].value]
    return statements


@cache
def _sources(*packages: str) -> dict[str, str]:
    paths = [path for name in packages for path in sorted((ROOT / name).rglob("*.*"))]
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in paths
        if path.suffix in {".py", ".lua"}
    }


def _definitions(module: ast.AST, above: str = "") -> Iterator[tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(module):
        name = f"{above}.{node.name}" if isinstance(node, _DEFINITIONS) else above
        if name != above:
            yield name, node
        yield from _definitions(node, name)


@cache
def _place(where: str) -> tuple[str, str]:
    """Return the file that is meant, and the name in it (empty: the whole file)."""
    last = where.rpartition(".")[2]
    found = []
    for path, source in _sources(*_PACKAGES).items():
        module = "." + path.removesuffix(".py").replace("/", ".")
        names = [""]
        if f"def {last}(" in source or f"class {last}" in source:
            names += [name for name, _ in _definitions(ast.parse(source))]
        found += [(path, name) for name in names if f"{module}{name}".endswith(f".{where}")]
    if len(found) != 1:
        raise NotThere(f"{where} is not one place: {found}")
    return found[0]
