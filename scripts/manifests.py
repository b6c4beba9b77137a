"""Write the files of deploy/ that are made from the code: Grafana's dashboard, Strimzi's resources.

    python scripts/manifests.py [--check]

With ``--check`` nothing is written: the exit code is 1 if a file is not up to date.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml

from deployment import dashboard, strimzi

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
_STRIMZI = """\
# Topics and users of Lethe for Strimzi, made by scripts/manifests.py from the topics' settings and
# from deploy/kafka/acls.csv: change those, not this file. The Kafka resource is called `kafka`, has
# three brokers and `authorization: {type: simple}`. docs/deploy.md says how to use it.
"""


def contents() -> dict[Path, str]:
    """Return what each file should hold."""
    resources = "---\n".join(
        yaml.safe_dump(resource, sort_keys=False, width=100) for resource in strimzi.resources()
    )
    return {
        DEPLOY / "helm/lethe/files/dashboard.json": json.dumps(dashboard.dashboard(), indent=1)
        + "\n",
        DEPLOY / "strimzi/lethe.yaml": f"{_STRIMZI}{resources}",
    }


def main(arguments: list[str]) -> int:
    """Write the files, or check them; return the exit code."""
    check = arguments == ["--check"]
    if arguments and not check:
        print(__doc__, file=sys.stderr)
        return 2
    outdated = 0
    for path, content in contents().items():
        if check:
            if not path.exists() or path.read_text(encoding="utf-8") != content:
                outdated = 1
                print(f"{path} is not up to date: run `make manifests`", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    return outdated


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
