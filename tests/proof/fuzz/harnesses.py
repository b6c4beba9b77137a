"""All harnesses by name."""

from __future__ import annotations

from tests.proof.fuzz import commits, evidence, given_files, messages, preprocessing, stored
from tests.proof.fuzz.contract import Harness

HARNESSES: dict[str, Harness] = {
    harness.name: harness
    for module in (messages, stored, preprocessing, commits, given_files, evidence)
    for harness in module.HARNESSES
}
