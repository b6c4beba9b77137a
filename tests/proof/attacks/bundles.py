"""Attacks by somebody who hands an auditor an exported history, or what belongs to one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lethe.consumers.audit.auditor import audit_bundle, audit_model
from lethe.consumers.audit.published.checkpoint import Checkpoint, parse_since
from lethe.consumers.audit.published.finding import Verdict
from lethe.engine.errors import LetheError
from tests.proof.attacks.attack import Act, Attack, Trace
from tests.proof.attacks.world import LINE, STRANGER, TRUSTED, World
from tests.support.bundles import Bundle, change, content_of, strip
from tests.support.forgeries import FORGER, forked, other_outcome, without_last_version

Forge = Callable[[Bundle], object]


def exported(world: World) -> Path:
    path = world.folder / "true.bundle"
    path.unlink(missing_ok=True)
    audit_model(
        world.store, world.platform.reader, LINE, trusted=TRUSTED, seals=world.platform.seals,
        remembered=lambda _model: None, export=path, bound=False, log_alone=False,
    )  # fmt: skip
    return path


def judged(path: Path, checkpoint: Checkpoint | None = None) -> str:
    """Return what an auditor with the true key finds."""
    try:
        outcome = audit_bundle(
            path, model_id=LINE, trusted=TRUSTED, remembered=lambda _model: checkpoint, holding=None
        )
    except LetheError as error:
        return error.code
    return str(outcome.verdict)


def forges(forge: Forge) -> Act:
    """Return what alters a true bundle, which an auditor must not find in order."""

    def act(world: World) -> Sequence[Trace]:
        path = exported(world)
        true = judged(path)
        bundle = Bundle.read(path)
        before = bundle.text()
        forge(bundle)
        bundle.write(path)
        found = judged(path)
        return [
            Trace("the true one", lambda: true, Verdict.HOLDS),
            Trace("it was altered", lambda: bundle.text() != before),
            Trace("the forged one holds", lambda: found == Verdict.HOLDS, False),
        ]

    return act


def damages(damage: Callable[[bytes], bytes]) -> Act:
    """Return what alters the bytes of a true bundle."""

    def act(world: World) -> Sequence[Trace]:
        path = exported(world)
        data = damage(path.read_bytes())
        path.write_bytes(data)
        found = judged(path)
        return [Trace("the damaged one holds", lambda: found == Verdict.HOLDS, False)]

    return act


def remade(bundle: Bundle) -> None:
    """Write the whole history anew, without a deletion, and sign it with a key of one's own."""
    for line in bundle.versions:
        content = content_of(line)
        change(line, rows_live=content["rows_live"] + content["rows_deleted"], rows_deleted=0)
    bundle.relink()
    bundle.sign(FORGER)
    bundle.header["public_keys"] = [FORGER.public_text]


def rolled_back(world: World) -> Sequence[Trace]:
    """Hand over a true but older history to an auditor who has seen the newer one."""
    path = exported(world)
    newest = content_of(Bundle.read(path).versions[-1])
    seen = parse_since(f"{newest['version']}:{newest['digest']}")
    bundle = Bundle.read(path)
    without_last_version(bundle)
    bundle.write(path)
    found = judged(path, seen)
    return [Trace("the older one holds", lambda: found == Verdict.HOLDS, False)]


def without_receipts(bundle: Bundle) -> None:
    for line in bundle.receipts:
        bundle.remove(line)
    bundle.header["receipts_begin"] = {str(i): 10**6 for i in range(16)}


def unsigned(bundle: Bundle) -> None:
    for line in bundle.lines:
        if "topic" in line:
            strip(line)


def elsewhere(bundle: Bundle) -> None:
    change(bundle.parameters, theta=None, intercept=None, uri="https://forged.example")
    strip(bundle.parameters)


def old_receipt(bundle: Bundle) -> None:
    """Add an unsigned receipt that is dated before the first signature."""
    line: dict[str, Any] = json.loads(json.dumps(bundle.receipts[0]))
    change(line, request_id="made up", completed_at="2020-01-01T00:00:00.000Z")
    strip(line)
    bundle.insert_after(bundle.header, line)


ATTACKS = (
    Attack(
        "a bundle without its newest version",
        "Leaves out the newest version and its receipts, for an auditor who has seen them.",
        "A checkpoint: the version must be there.",
        rolled_back,
    ),
    Attack(
        "a bundle without receipts",
        "Leaves out all receipts, and says that the log has lost them.",
        "What versions name and is not there is not proved.",
        forges(without_receipts),
    ),
    Attack(
        "a bundle without signatures", "Removes all signatures.", "`NOT PROVED`.", forges(unsigned)
    ),
    Attack(
        "a history of one's own",
        "Writes all versions anew without a deletion, and signs them.",
        "The auditor's own list of keys counts, not the file's.",
        forges(remade),
    ),
    Attack(
        "a second version in a bundle",
        "Adds a second version of the newest number.",
        "A fork is refused.",
        forges(forked),
    ),
    Attack(
        "a second outcome in a bundle",
        "Adds another final receipt of a request.",
        "A request has one outcome.",
        forges(other_outcome),
    ),
    Attack(
        "a receipt of long ago",
        "Adds an unsigned receipt that is dated before the first signature.",
        "A date proves nothing: `NOT PROVED`.",
        forges(old_receipt),
    ),
    Attack(
        "parameters elsewhere in a bundle",
        "Replaces parameters by an address.",
        "What no trusted key signed is not proved.",
        forges(elsewhere),
    ),
    Attack(
        "leaves of one's own",
        "Changes a leaf of the receipt log.",
        "Versions name the root of the leaves.",
        forges(lambda bundle: setattr(bundle, "leaves", [bytes(32), *bundle.leaves[1:]])),
    ),
    Attack(
        "a bundle of another model",
        "Renames the model in the first line.",
        "The auditor says which model is meant.",
        forges(lambda bundle: bundle.header.update(model_id="other")),
    ),
    Attack(
        "a bundle that is cut",
        "Cuts the file's end off.",
        "The last line counts the others.",
        damages(lambda data: data[: len(data) // 2]),
    ),
    Attack(
        "a line that never ends",
        "Adds a line of 5 MB.",
        "A line has a limit.",
        damages(lambda data: data.replace(b"\n", b"\n" + b" " * (5 << 20) + b"\n", 1)),
    ),
    Attack(
        "a deep line",
        "Adds a line that is nested 100,000 deep.",
        "A line's depth has a limit.",
        damages(lambda data: data.replace(b"\n", b"\n" + b"[" * 100_000 + b"\n", 1)),
    ),
    Attack(
        "a bundle with a mark before it",
        "Adds a byte order mark, which some readers skip.",
        "It is refused.",
        damages(lambda data: b"\xef\xbb\xbf" + data),
    ),
    Attack(
        "a bundle that a stranger signed",
        "Signs a true history with a key of their own.",
        "`NOT PROVED`.",
        forges(lambda bundle: bundle.sign(STRANGER)),
    ),
)
