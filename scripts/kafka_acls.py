#!/usr/bin/env python3
"""Grant the rights of deploy/kafka/acls.csv: print the commands, or do it.

    scripts/kafka_acls.py [--user ROLE=NAME ...]            prints kafka-acls.sh commands
    scripts/kafka_acls.py [--user ROLE=NAME ...] --apply    grants them over LETHE_KAFKA_*

Without --user a role's user is ``lethe-ROLE``. A NAME like ``CN=scores`` is that of a client
certificate. Rights that are there already stay.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ACLS = Path(__file__).resolve().parent.parent / "deploy" / "kafka" / "acls.csv"


@dataclass(frozen=True, slots=True)
class Right:
    """What a user may do with one topic, group or prefix of them."""

    user: str
    resource: str
    name: str
    operations: tuple[str, ...]

    @property
    def prefixed(self) -> bool:
        """Whether the name is the beginning of names."""
        return self.name.endswith("*")

    def command(self) -> str:
        """Return the arguments of kafka-acls.sh."""
        name = self.name.removesuffix("*")
        pattern = " --resource-pattern-type prefixed" if self.prefixed else ""
        operations = " ".join(f"--operation {operation}" for operation in self.operations)
        return (
            f"kafka-acls.sh --add --allow-principal 'User:{self.user}' {operations} "
            f"--{self.resource} '{name}'{pattern}"
        )


def rights(users: Mapping[str, str], path: Path = ACLS) -> Iterator[Right]:
    """Yield the rights of the file, with each role's user."""
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            role, resource, name, operations = line.split(",")
            yield Right(users.get(role, f"lethe-{role}"), resource, name, tuple(operations.split()))


def apply(wanted: Iterable[Right]) -> int:
    """Grant the rights through Kafka's admin protocol; return how many there are."""
    from kafka import KafkaAdminClient  # noqa: PLC0415 (the printed commands need none of this)
    from kafka.admin import (  # noqa: PLC0415
        ACL,
        ACLOperation,
        ACLPermissionType,
        ACLResourcePatternType,
        ResourcePattern,
        ResourceType,
    )

    from lethe.consumers.service.configuration.credentials import kafka_access  # noqa: PLC0415
    from lethe.consumers.service.configuration.settings import load_settings  # noqa: PLC0415

    settings = load_settings({})
    kinds = ACLResourcePatternType
    entries = [
        ACL(
            principal=f"User:{right.user}",
            host="*",
            operation=ACLOperation[_snake(operation)],
            permission_type=ACLPermissionType.ALLOW,
            resource_pattern=ResourcePattern(
                ResourceType[right.resource.upper()],
                right.name.removesuffix("*"),
                kinds.PREFIXED if right.prefixed else kinds.LITERAL,
            ),
        )
        for right in wanted
        for operation in right.operations
    ]
    client = KafkaAdminClient(
        bootstrap_servers=settings.kafka_bootstrap_servers, **kafka_access(settings)
    )
    try:
        answer = client.create_acls(entries)
    finally:
        client.close()
    if answer["failed"]:
        print(f"kafka_acls: not granted: {answer['failed']}", file=sys.stderr)
        return 0
    return len(entries)


def _snake(operation: str) -> str:
    """Return an operation of kafka-acls.sh as kafka-python names it: DESCRIBE_CONFIGS."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", operation).upper()


def main(arguments: list[str]) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--user", action="append", default=[], metavar="ROLE=NAME")
    parser.add_argument("--apply", action="store_true", help="grant instead of printing")
    chosen = parser.parse_args(arguments)
    users = dict(one.split("=", 1) for one in chosen.user)
    wanted = list(rights(users))
    if not chosen.apply:
        for right in wanted:
            print(right.command())
        return 0
    count = apply(wanted)
    print(f"{count} rights granted")
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
