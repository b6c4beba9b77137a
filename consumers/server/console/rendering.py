"""Templates, and how times, figures and outcomes are worded."""

from __future__ import annotations

import json
import shlex
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from lethe.consumers.server.console.due import due_of
from lethe.consumers.server.index.requests import COUNTED
from lethe.consumers.server.paths import file_name

_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
_TONES = {
    "APPLIED": "good", "ALREADY_APPLIED": "good", "REJECTED": "bad", "DEFERRED": "warn",
    "WAITING": "warn", "DEAD_LETTER": "bad", "PENDING": "warn", "COMPLETE": "good",
    "INCOMPLETE": "warn", "NOT_COVERED": "bad", "AWAITED": "warn",
}  # fmt: skip
_OPERATIONS = {"delete": "delete from", "insert": "insert into", "correct": "correct in"}
_REFRESHES = {
    "complete": "completion", "polish": "polish", "compact": "compaction", "rebuild": "rebuild",
}  # fmt: skip


def absolute(at: str) -> str:
    """Return an RFC 3339 time as a person reads it: ``2026-11-24 12:25:19``."""
    return at[:19].replace("T", " ")


def relative(at: str) -> str:
    """Return how long ago a time was."""
    try:
        seconds = (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds()
    except ValueError:
        return ""
    unit, size = next((one for one in _UNITS if abs(seconds) >= one[1]), _UNITS[-1])
    count = int(abs(seconds) / size)
    named = f"{count} {unit}{'s' * (count != 1)}"
    return f"{named} ago" if seconds >= 0 else f"in {named}"


def words(status: str) -> str:
    """Return a status or a code in lower case words."""
    return status.replace("_", " ").lower()


def figure(value: float) -> str:
    """Return a number with three digits."""
    return f"{value:.3g}"


def counted(count: int) -> str:
    """Return a count that stops at a limit."""
    return f"more than {COUNTED:,}" if count > COUNTED else f"{count:,}"


def seconds(value: float) -> str:
    """Return a duration."""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def rows_changed(row: sqlite3.Row) -> int:
    """Return how many rows a request has changed."""
    return int(row["rows_deleted"] + row["rows_inserted"] + row["rows_corrected"])


def outcome(receipt: Mapping[str, Any]) -> str:
    """Return what a receipt says, as a sentence."""
    names = ("deleted", "inserted", "corrected")
    parts = [
        f"{count:,} row{'s' * (count != 1)} {name}"
        for name in names
        if (count := int(receipt.get(f"rows_{name}") or 0))
    ]
    if unknown := int(receipt.get("rows_unknown") or 0):
        parts.append(f"{unknown:,} never the model's")
    if receipt.get("version") is not None and receipt["status"] == "APPLIED":
        parts.append(f"in version {receipt['version']}")
    error = receipt.get("error") or {}
    if error.get("relative") is not None:
        parts.append(f"error {figure(error['relative'])} of a budget of {figure(error['budget'])}")
    return "; ".join(parts)


def origin(row: sqlite3.Row) -> str:
    """Return what made a version."""
    if row["refresh"]:
        return f"{_REFRESHES.get(row['refresh'], row['refresh'])}"
    if row["version"] == 0:
        return "registration"
    if not row["requests"]:
        return "registered again"
    return f"{row['requests']} request{'s' * (row['requests'] != 1)}"


def state_badge(row: sqlite3.Row) -> Markup:
    """Return the state of a model as a badge."""
    known = row.keys()
    trouble, pending = row["trouble"], row["pending_reason"]
    status = row["stored_status"] if "stored_status" in known else row["status"]
    if trouble:
        tone, text = ("warn" if trouble == "AWAITING_REBUILD" else "bad"), words(trouble)
    elif status == "UNREGISTERED":
        tone, text = "", "unregistered"
    elif pending:
        tone, text = "warn", "refresh pending"
    elif "over_budget" in known and row["over_budget"]:
        tone, text = "warn", "over budget"
    elif status is None:
        tone, text = "", "published"
    else:
        tone, text = "good", words(status)
    return Markup('<span class="badge {}">{}</span>').format(tone, text)


def query_of(values: Mapping[str, Any]) -> str:
    """Return values as the query of an address; empty ones are left out."""
    return urlencode({name: value for name, value in values.items() if value != ""})


def _merged(query: Mapping[str, str], more: Mapping[str, Any]) -> dict[str, Any]:
    return {**query, **more}


def environment() -> Environment:
    """Return the templates; every value is escaped, and a name that is missing is an error."""
    made = Environment(
        loader=PackageLoader("lethe.consumers.server.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        absolute=absolute,
        relative=relative,
        words=words,
        figure=figure,
        counted=counted,
        seconds=seconds,
        rows_changed=rows_changed,
        outcome=outcome,
        due=due_of,
        origin=origin,
        state_badge=state_badge,
        merged=_merged,
        file_name=file_name,
        shell=shlex.quote,
        urlencode=query_of,
        tone=lambda status: _TONES.get(status, ""),
        operation=lambda op: _OPERATIONS.get(op, op),
        pretty=lambda data: escape(json.dumps(data, indent=2, ensure_ascii=False)),
    )
    return made
