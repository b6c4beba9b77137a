"""One file before both verifiers: what each says, and that they say the same."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from lethe.consumers.audit.auditor import audit_bundle
from lethe.consumers.audit.published.checkpoint import read_checkpoint
from lethe.consumers.contract.signatures import parse_trusted
from lethe.engine.errors import InvalidData
from tests.support.page_verifier import PageVerifier

NOT_READ = "not read"


@dataclass(frozen=True)
class Judged:
    """What a verifier says of a file."""

    verdict: str
    results: dict[str, str] = field(default_factory=dict)
    why: str = field(default="", compare=False)


def by_command(path: Path, trust: str, seen: Path | None) -> Judged:
    """Return what `lethe audit --bundle` makes of a file; any other error than its own is a bug."""
    try:
        audit = audit_bundle(
            path,
            model_id=None,
            trusted=parse_trusted(trust, "keys") if trust else None,
            remembered=lambda model: None if seen is None else read_checkpoint(seen, model),
            holding=None,
        )
    except InvalidData as error:
        return Judged(NOT_READ, why=str(error))
    results = {one.check: one.result.value for one in audit.findings}
    return Judged(audit.verdict.value, results, str([one.detail for one in audit.findings]))


def by_page(page: PageVerifier, path: Path, trust: str, seen: Path | None) -> Judged:
    """Return what the page makes of it."""
    answer = page(path, trust, "" if seen is None else seen.read_text())
    if "unreadable" in answer or "What was seen before is of" in answer.get("crash", ""):
        return Judged(NOT_READ, why=json.dumps(answer))
    assert "crash" not in answer, answer["crash"]
    results = {one["check"]: one["result"] for one in answer["checks"]}
    return Judged(answer["verdict"], results, str([one["detail"] for one in answer["checks"]]))


def judged(page: PageVerifier, path: Path, trust: str = "", seen: Path | None = None) -> Judged:
    """Return what both say."""
    command, browser = by_command(path, trust, seen), by_page(page, path, trust, seen)
    assert command == browser, f"{command}\n{browser}\n{command.why}\n{browser.why}"
    return command
