"""All harnesses by name."""

from __future__ import annotations

from tests.fuzz import commits, evidence, given_files, messages, stored
from tests.fuzz.contract import Harness

HARNESSES: dict[str, Harness] = {
    harness.name: harness
    for module in (messages, stored, commits, given_files, evidence)
    for harness in module.HARNESSES
}
