"""Reading a lock file: names, versions, hashes, and which package asked for which."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = "lethe-engine"

_HASH = re.compile(r"^    --hash=sha256:([0-9a-f]{64})( \\)?$")
_VIA = re.compile(r"^    #( via|  ) ?(-c \S+|(?P<name>[A-Za-z0-9._-]+))?( \(.*\))?$")


@dataclass(frozen=True, slots=True)
class Locked:
    """One pinned package.

    Attributes
    ----------
    name, version
        As the lock has them; the name in its canonical form.
    hashes
        SHA-256 of each file that may be installed for it.
    wanted_by
        Packages that depend on it; `ROOT` where that is the project itself.
    line
        Where it stands in the lock.
    """

    name: str
    version: str
    hashes: tuple[str, ...]
    wanted_by: tuple[str, ...]
    line: int


def read_lock(path: Path) -> list[Locked]:
    """Return the packages of a lock file.

    Raises
    ------
    ValueError
        A line is none that a lock of pinned and hashed packages has.
    """
    found: list[Locked] = []
    lines = [*enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)]
    starts = [at for at, (_, text) in enumerate(lines) if text and text[0] not in " #"]
    for at, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        number, head = lines[at]
        pinned = Requirement(head.removesuffix("\\").strip())
        versions = [one for one in pinned.specifier if one.operator == "=="]
        if len(pinned.specifier) != 1 or not versions or pinned.url is not None:
            raise ValueError(f"{path}, line {number}: {head!r} pins no version")
        hashes, wanted_by = _details(path, lines[at + 1 : end])
        name = canonicalize_name(pinned.name)
        found.append(Locked(name, versions[0].version, hashes, wanted_by, number))
    return found


def _details(path: Path, lines: list[tuple[int, str]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    hashes: list[str] = []
    wanted_by: list[str] = []
    for number, text in lines:
        if match := _HASH.match(text):
            hashes.append(match[1])
        elif match := _VIA.match(text):
            wanted_by += [match["name"]] if match["name"] else []
        elif text.strip():
            raise ValueError(f"{path}, line {number}: {text!r} is no hash")
    return tuple(hashes), tuple(map(canonicalize_name, wanted_by))


def dependencies_of(name: str, packages: list[Locked]) -> Iterator[Locked]:
    """Yield the packages that ``name`` asked for."""
    for package in packages:
        if name in package.wanted_by:
            yield package
