"""Look for the pinned packages in a directory of advisories.

    python scripts/audit_dependencies.py --advisories DIRECTORY [--accept ID ...] [LOCK ...]

The directory holds advisories in the OSV format, one JSON file each: the export of a vulnerability
database, for machines that reach no network. Exit code 1 if a pinned package is named, 2 if the
directory cannot be read. Without a directory it says that nothing was audited, and exits with 0.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from supply_chain.advisories import Finding, UnreadableAdvisory, findings, read_advisories
from supply_chain.locked import read_lock

TOP = Path(__file__).resolve().parent.parent
LOCKS = (
    "requirements.lock",
    "requirements-dev.lock",
    "deploy/requirements-build.lock",
    "deploy/requirements-server.lock",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit the locks; return the exit code."""
    parser = argparse.ArgumentParser(description="Look for pinned packages in OSV advisories.")
    parser.add_argument("--advisories", default="", help="directory of OSV JSON files")
    parser.add_argument("--accept", action="append", default=[], help="an advisory to pass over")
    parser.add_argument("locks", nargs="*", type=Path, help="lock files; all of the project's")
    given = parser.parse_args(arguments)
    locks = given.locks or [TOP / name for name in LOCKS]
    if not given.advisories:
        print("audit: nothing was audited: name a directory of OSV advisories, ADVISORIES=DIR")
        return 0
    try:
        advisories = list(read_advisories(Path(given.advisories)))
    except (OSError, UnreadableAdvisory) as error:
        print(f"audit: {error}", file=sys.stderr)
        return 2
    if not advisories:
        print(f"audit: {given.advisories} holds no advisories", file=sys.stderr)
        return 2
    named = 0
    for lock in locks:
        packages = read_lock(lock)
        found = [one for one in findings(packages, advisories) if not _accepted(one, given.accept)]
        named += len(found)
        print(f"audit: {lock.name}: {len(packages)} packages, {len(found)} findings")
        for one in found:
            print(f"  {_line(one)}")
    print(f"audit: {len(advisories)} advisories")
    return 1 if named else 0


def _accepted(finding: Finding, accepted: Sequence[str]) -> bool:
    return not {finding.advisory, *finding.aliases}.isdisjoint(accepted)


def _line(finding: Finding) -> str:
    names = ", ".join([finding.advisory, *finding.aliases])
    fixed = f"; fixed in {', '.join(finding.fixed_in)}" if finding.fixed_in else ""
    package = finding.package
    return f"{package.name} {package.version}: {names}: {finding.summary}{fixed}"


if __name__ == "__main__":
    sys.exit(main())
