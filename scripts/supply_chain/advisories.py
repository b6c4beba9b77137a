"""Matching pinned packages with advisories in the OSV format, from a directory, without a network.

https://ossf.github.io/osv-schema/ has the format. Of what it says about an affected package, the
listed versions and the ranges of type ECOSYSTEM and SEMVER are looked at; ranges of commits are
not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from supply_chain.locked import Locked

MAX_ADVISORY_BYTES = 8 << 20
"""The longest that was ever published has some hundred kilobytes of version numbers."""

_RANGES = ("ECOSYSTEM", "SEMVER")


@dataclass(frozen=True, slots=True)
class Finding:
    """A pinned package that an advisory names."""

    package: Locked
    advisory: str
    aliases: tuple[str, ...]
    summary: str
    fixed_in: tuple[str, ...]


class UnreadableAdvisory(ValueError):
    """A file of the directory is no advisory: an audit that skips it would be a false comfort."""


def read_advisories(directory: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the advisories about Python packages that lie in a directory, at any depth.

    Raises
    ------
    UnreadableAdvisory
        A JSON file is no advisory.
    """
    for path in sorted(directory.rglob("*.json")):
        if path.stat().st_size > MAX_ADVISORY_BYTES:
            raise UnreadableAdvisory(f"{path}: is longer than {MAX_ADVISORY_BYTES} bytes")
        try:
            data = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise UnreadableAdvisory(f"{path}: is no JSON ({error})") from None
        if not isinstance(data, dict) or not isinstance(data.get("id"), str):
            raise UnreadableAdvisory(f"{path}: is no advisory in the OSV format")
        if not data.get("withdrawn"):
            yield data


def findings(packages: Iterable[Locked], advisories: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Return which packages the advisories name, in the order of the lock."""
    by_name: dict[str, list[Locked]] = {}
    for package in packages:
        by_name.setdefault(package.name, []).append(package)
    found: list[Finding] = []
    for advisory in advisories:
        for affected in advisory.get("affected") or ():
            about = affected.get("package") or {}
            if about.get("ecosystem") != "PyPI":
                continue
            for package in by_name.get(canonicalize_name(str(about.get("name"))), ()):
                if is_affected(Version(package.version), affected):
                    found.append(_finding(package, advisory, affected))
    return sorted(found, key=lambda one: (one.package.line, one.advisory))


def is_affected(version: Version, affected: Mapping[str, Any]) -> bool:
    """Return whether one entry of an advisory's ``affected`` covers a version."""
    if any(_version(listed) == version for listed in affected.get("versions") or ()):
        return True
    return any(
        _in_range(version, one.get("events") or ())
        for one in affected.get("ranges") or ()
        if one.get("type") in _RANGES
    )


def _in_range(version: Version, events: Iterable[Mapping[str, str]]) -> bool:
    """Return what the events, in the order of their versions, leave a version at."""
    steps: list[tuple[Version, int, bool]] = []
    for event in events:
        for kind, at in event.items():
            known = Version("0.dev0") if at == "0" else _version(at)
            if known is None:
                return True  # what cannot be compared is reported rather than passed over
            if kind == "introduced":
                steps.append((known, 1, True))
            elif kind == "fixed":
                steps.append((known, 0, False))
            elif kind == "last_affected" and version > known:
                steps.append((known, 2, False))
    affected = False
    for place, _, after in sorted(steps, key=lambda step: step[:2]):
        if version >= place:
            affected = after
    return affected


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _finding(package: Locked, advisory: Mapping[str, Any], affected: Mapping[str, Any]) -> Finding:
    fixed = {
        event["fixed"]
        for one in affected.get("ranges") or ()
        if one.get("type") in _RANGES
        for event in one.get("events") or ()
        if "fixed" in event
    }
    return Finding(
        package,
        advisory["id"],
        tuple(advisory.get("aliases") or ()),
        str(advisory.get("summary") or advisory.get("details") or "").partition("\n")[0][:200],
        tuple(sorted(fixed)),
    )
