"""Exported histories as forgers would have them: read, altered at one place, and written again."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lethe.consumers.contract import topics, version_chain
from lethe.consumers.contract.erasure_events import SUBJECT_ERASURE_COMPLETED
from lethe.consumers.contract.events import DELETION_RECEIPT, MODEL_PARAMETERS, MODEL_VERSION
from lethe.consumers.contract.signatures import HEADER, Signer

TYPES = {
    topics.VERSIONS: MODEL_VERSION,
    topics.RECEIPTS: DELETION_RECEIPT,
    topics.MODELS: MODEL_PARAMETERS,
    topics.ERASURE_RECEIPTS: SUBJECT_ERASURE_COMPLETED,
}
Line = dict[str, Any]


class Bundle:
    """The lines of a bundle, as parsed JSON."""

    def __init__(self, lines: list[Line]) -> None:
        self.lines = lines

    @classmethod
    def read(cls, path: Path) -> Bundle:
        return cls([json.loads(line) for line in path.read_text().splitlines()])

    def copy(self) -> Bundle:
        return Bundle(copy.deepcopy(self.lines))

    def write(self, path: Path) -> None:
        path.write_text(self.text())

    def text(self) -> str:
        records = sum("topic" in line for line in self.lines)
        for line in self.lines:
            if "lethe_bundle_end" in line:
                line["records"] = records  # a forger counts, too
        return "".join(json.dumps(line) + "\n" for line in self.lines)

    @property
    def header(self) -> Line:
        return self.lines[0]

    def of(self, topic: str) -> list[Line]:
        return [line for line in self.lines if line.get("topic") == topic]

    @property
    def versions(self) -> list[Line]:
        return self.of(topics.VERSIONS)

    @property
    def receipts(self) -> list[Line]:
        return self.of(topics.RECEIPTS)

    @property
    def parameters(self) -> Line:
        return self.of(topics.MODELS)[0]

    @property
    def combined(self) -> Line:
        """The combined receipt, in the evidence of an erasure."""
        return self.of(topics.ERASURE_RECEIPTS)[0]

    def having(self, member: str) -> list[Line]:
        """Return the lines with a member, but for the first: parts, proofs, openings."""
        return [line for line in self.lines[1:] if member in line]

    def remove(self, line: Line) -> None:
        self.lines = [one for one in self.lines if one is not line]

    def insert_after(self, line: Line, new: Line) -> None:
        place = next(i for i, one in enumerate(self.lines) if one is line)
        self.lines.insert(place + 1, new)

    # -- the receipt log ------------------------------------------------------------------------

    @property
    def leaves(self) -> list[bytes]:
        data = b"".join(
            base64.b64decode(line["receipt_log"]) for line in self.lines if "receipt_log" in line
        )
        return [data[i : i + 32] for i in range(0, len(data), 32)]

    @leaves.setter
    def leaves(self, leaves: Sequence[bytes]) -> None:
        kept = [line for line in self.lines if "receipt_log" not in line]
        new = {"receipt_log": base64.b64encode(b"".join(leaves)).decode()}
        self.lines = [*kept[:-1], new, kept[-1]] if leaves else kept

    def relink(self) -> None:
        """Make digests and links anew, and the parameters' with them: a forger without a key."""
        before = ""
        for line in sorted(self.versions, key=lambda line: int(content_of(line)["version"])):
            content = content_of(line)
            content["prev_digest"] = before
            content["digest"] = version_chain.content_digest(content)
            before = content["digest"]
            put(line, content)
            newest = content
        event = content_of(self.parameters)
        if event["version"] == newest["version"]:
            event |= {name: newest[name] for name in ("digest", "prev_digest")}
            put(self.parameters, event)

    def sign(self, signer: Signer) -> None:
        """Sign everything anew."""
        for line in self.lines:
            if "topic" in line:
                sign(line, signer)


def value_of(line: Line) -> bytes:
    return base64.b64decode(line["value"])


def content_of(line: Line) -> Any:
    return json.loads(value_of(line))


def put(line: Line, content: Any) -> None:
    """Set a record's value; compact JSON as the workers write it."""
    data = content if isinstance(content, bytes) else json.dumps(
        content, separators=(",", ":"), ensure_ascii=False
    ).encode()  # fmt: skip
    line["value"] = base64.b64encode(data).decode()


def change(line: Line, **members: Any) -> None:
    put(line, content_of(line) | members)


def sign(line: Line, signer: Signer) -> None:
    signature = signer.sign(TYPES[line["topic"]], value_of(line))
    others = [pair for pair in line["headers"] if pair[0] != HEADER]
    line["headers"] = [*others, [HEADER, base64.b64encode(signature).decode()]]


def strip(line: Line) -> None:
    line["headers"] = [pair for pair in line["headers"] if pair[0] != HEADER]


def signature_of(line: Line) -> bytes:
    return next(base64.b64decode(value) for name, value in line["headers"] if name == HEADER)


def put_signature(line: Line, signature: bytes) -> None:
    strip(line)
    line["headers"].append([HEADER, base64.b64encode(signature).decode()])


@dataclass(frozen=True)
class Forgery:
    """What a forger does to a bundle, and which check must refuse it."""

    name: str
    forge: Callable[[Bundle], object]
    check: str
