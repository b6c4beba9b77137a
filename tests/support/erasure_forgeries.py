"""What is done to the evidence of an erasure, and what both verifiers must say of it.

As `tests.support.forgeries`, for `lethe erasures ID --bundle FILE`. A `LIES` is one that the
operator's own key signs: a combined receipt that contradicts itself, or the models' own receipts.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from lethe.consumers.contract import topics
from tests.support.bundles import Bundle, Forgery, Line, change, content_of, sign, strip
from tests.support.forgeries import FORGER, flip, flip_digit, flip_signature, resigned, then, word


def combined(bundle: Bundle) -> Line:
    return bundle.combined


def saying(**members: Any) -> Callable[[Bundle], object]:
    """Return what changes members of the combined receipt."""
    return lambda bundle: change(bundle.combined, **members)


def of_model(place: int, **members: Any) -> Callable[[Bundle], object]:
    """Return what changes what the combined receipt says of one model."""

    def forge(bundle: Bundle) -> None:
        models = content_of(bundle.combined)["models"]
        models[place] |= members
        change(bundle.combined, models=models)

    return forge


def without_model(bundle: Bundle) -> None:
    """Forget a model in the combined receipt alone."""
    [_, *models] = content_of(bundle.combined)["models"]
    change(bundle.combined, models=models, rows_deleted=sum(one["rows_deleted"] for one in models))


def made_up_model(bundle: Bundle) -> None:
    models = content_of(bundle.combined)["models"]
    made = {**models[0], "model_id": "made-up", "rows_deleted": 0}
    change(bundle.combined, models=[*models, made])


def without_part(bundle: Bundle) -> None:
    """Drop everything that a file has of its last model."""
    begin = max(i for i, line in enumerate(bundle.lines) if "model_id" in line)
    ends = (i for i, line in enumerate(bundle.lines) if "inclusion" in line and i > begin)
    del bundle.lines[begin : max(ends) + 1]


def parts_exchanged(bundle: Bundle) -> None:
    one, other = bundle.having("model_id")
    one["model_id"], other["model_id"] = other["model_id"], one["model_id"]


def part_twice(bundle: Bundle) -> None:
    bundle.insert_after(bundle.having("inclusion")[-1], dict(bundle.having("model_id")[0]))


def proof(bundle: Bundle, **members: Any) -> None:
    bundle.having("inclusion")[0]["inclusion"] |= members


def path_of(bundle: Bundle) -> bytes:
    return base64.b64decode(bundle.having("inclusion")[0]["inclusion"]["path"])


def path(bundle: Bundle, data: bytes) -> None:
    proof(bundle, path=base64.b64encode(data).decode())


def proofs_exchanged(bundle: Bundle) -> None:
    one, other = bundle.having("inclusion")[:2]
    one["inclusion"], other["inclusion"] = other["inclusion"], one["inclusion"]


def drop(*members: str) -> Callable[[Bundle], object]:
    """Return what removes all lines with one of some members."""

    def forge(bundle: Bundle) -> None:
        bundle.lines = [
            bundle.header, *(one for one in bundle.lines[1:] if not set(members) & one.keys()),
        ]  # fmt: skip

    return forge


def opening(**members: str) -> Callable[[Bundle], object]:
    return lambda bundle: bundle.having("opening")[0]["opening"].update(members)


def second_combined(bundle: Bundle) -> None:
    """Add another combined receipt, which says what was said before the models answered."""
    twin = json.loads(json.dumps(bundle.combined))
    content = content_of(twin) | {"status": "PENDING", "complete": False, "completed_at": None}
    bundle.insert_after(bundle.combined, twin)
    change(twin, **content)


def foreign_receipt(bundle: Bundle) -> None:
    """Have a model's part answer a request that the erasure never sent."""
    change(bundle.receipts[0], request_id="made up", version=None, status="REJECTED",
           code="UNKNOWN_ROWS", rows_deleted=0)  # fmt: skip


def unsigned(bundle: Bundle) -> None:
    for line in bundle.having("topic"):
        strip(line)


def unsigned_receipts(bundle: Bundle) -> None:
    """Strip what the tree heads of signed versions have."""
    for line in bundle.receipts:
        strip(line)


LIES: tuple[Forgery, ...] = (
    Forgery("fewer rows of a model", then(of_model(0, rows_deleted=1), saying(rows_deleted=4)),
            "answers"),
    Forgery("a version that no receipt names", of_model(0, version=9), "answers"),
    Forgery("no version", of_model(0, version=None), "answers"),
    Forgery("deleted before", of_model(0, status="ALREADY_APPLIED"), "answers"),
    Forgery("it held nothing", of_model(0, status="REJECTED", code="UNKNOWN_ROWS"), "answers"),
    Forgery("a code that no receipt has", of_model(0, code="DATA_LOST"), "answers"),
    Forgery("a request of another erasure", of_model(0, request_ids=["made up"]), "answers"),
    Forgery("a model is left out", without_model, "answers"),
    Forgery("answered before the models", saying(completed_at="2020-01-01T00:00:00.000Z"),
            "answers"),
    Forgery("complete with 0 models", saying(models=[], rows_deleted=0), "answers"),
    Forgery("no model knew the person", saying(unknown=True), "erasure"),
    Forgery("another sum", saying(rows_deleted=7), "erasure"),
    Forgery("complete and not complete", saying(complete=False), "erasure"),
    Forgery("incomplete, although all is gone", saying(status="INCOMPLETE", complete=False),
            "erasure"),
    Forgery("complete, and awaited", saying(awaited=["linear"]), "erasure"),
    Forgery("complete, with a model that has not answered", of_model(0, status="AWAITED"),
            "erasure"),
    Forgery("complete, with a model that is not covered", of_model(0, status="NOT_COVERED"),
            "erasure"),
    Forgery("a model that was asked nothing", of_model(0, request_ids=[]), "erasure"),
    Forgery("a model twice", of_model(1, model_id="linear"), "erasure"),
    Forgery("complete at no time", saying(completed_at=None), "erasure"),
    Forgery("two combined receipts", second_combined, "erasure"),
    Forgery("of another person", saying(subject_commitment="0" * 64), "subject"),
    Forgery("of nobody", saying(subject_commitment=None), "subject"),
    Forgery("of another namespace", saying(namespace="crm"), "subject"),
    Forgery("another erasure", saying(erasure_id="another"), "records"),
    Forgery("a status that is none", saying(status="DONE"), "records"),
    Forgery("text for a number", saying(rows_deleted="6"), "records"),
    Forgery("a member twice", word(combined, "{", '{"status":"PENDING",'), "records"),
    Forgery("a request that was never sent", foreign_receipt, "answers"),
)  # fmt: skip
"""Invalid with and without keys, and if the operator signs everything anew."""

FORGED: tuple[Forgery, ...] = (
    *LIES,
    Forgery("a bit of the combined receipt", lambda b: flip(b.combined, 0), "records"),
    Forgery("a bit of a receipt", lambda b: flip_digit(b.receipts[0], "rows_deleted"), "answers"),
    Forgery("a bit of a version", lambda b: flip_digit(b.versions[0], "rows_live"), "records"),
    Forgery("no combined receipt", lambda b: b.remove(b.combined), "erasure"),
    Forgery("parts exchanged", parts_exchanged, "records"),
    Forgery("a part twice", part_twice, "records"),
    Forgery("no model is named", drop("model_id"), "records"),
    Forgery("a part of another model",
            lambda b: b.having("model_id")[0].update(model_id="x"), "records"),
    Forgery("a proof of another place", lambda b: proof(b, index=0), "receipt log"),
    Forgery("of a place far behind", lambda b: proof(b, index=2**53 - 1), "receipt log"),
    Forgery("of another version", lambda b: proof(b, version=99), "receipt log"),
    Forgery("of another receipt",
            lambda b: proof(b, leaf=base64.b64encode(bytes(32)).decode()), "receipt log"),
    Forgery("proofs of two models exchanged", proofs_exchanged, "receipt log"),
    Forgery("a path without its end", lambda b: path(b, path_of(b)[:-32]), "receipt log"),
    Forgery("a path that is too long", lambda b: path(b, path_of(b) + bytes(32)), "receipt log"),
    Forgery("a bit of a path",
            lambda b: path(b, bytes([path_of(b)[0] ^ 1]) + path_of(b)[1:]), "receipt log"),
    Forgery("a record of a foreign topic",
            lambda b: b.versions[0].update(topic=topics.DELETIONS), "records"),
    Forgery("opened to another person", opening(subject_id="h6"), "subject"),
    Forgery("with another salt", opening(salt="0" * 64), "subject"),
)  # fmt: skip
"""Invalid with and without keys."""

SIGNED: tuple[Forgery, ...] = (
    Forgery("a bit of the combined receipt's signature",
            lambda b: flip_signature(b.combined), "signatures"),
    Forgery("of a receipt's", lambda b: flip_signature(b.receipts[0]), "signatures"),
    Forgery("the combined receipt signed by another key",
            lambda b: sign(b.combined, FORGER), "signatures"),
    Forgery("everything signed by another key", resigned, "signatures"),
)  # fmt: skip
"""Invalid because keys are trusted."""

UNPROVED: tuple[Forgery, ...] = (
    Forgery("an unsigned combined receipt", lambda b: strip(b.combined), "signatures"),
    Forgery("nothing is signed", unsigned, "signatures"),
    Forgery("a model's part is dropped", without_part, "answers"),
    Forgery("no proofs", drop("inclusion"), "receipt log"),
)  # fmt: skip
"""Not refused where keys are trusted, but never proved."""

HARMLESS: tuple[Forgery, ...] = (
    Forgery("nothing", lambda _: None, ""),
    Forgery("nobody is named", drop("opening"), ""),
    Forgery("another time of export", lambda b: b.header.update(exported_at=None), ""),
    Forgery("what witnesses have seen, for whom nobody asks",
            lambda b: b.lines.insert(-1, {"checkpoint": "x"}), ""),
    Forgery("and in another form", lambda b: b.lines.insert(1, {"checkpoint": ["x"]}), ""),
    Forgery("a line that nobody knows", lambda b: b.lines.insert(3, {"note": "x"}), ""),
    Forgery("leaves, which belong to a model's history",
            lambda b: b.lines.insert(-1, {"receipt_log": "AAAA"}), ""),
    Forgery("receipts that tree heads vouch for", unsigned_receipts, ""),
    Forgery("the combined receipt twice",
            lambda b: b.insert_after(b.combined, json.loads(json.dumps(b.combined))), ""),
)  # fmt: skip
"""The same evidence: no check fails, and with keys that are trusted it is proved."""

UNREADABLE: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
    ("cut after a line", lambda data: data[: data.rindex(b"\n", 0, -1) + 1]),
    ("a format to come", lambda data: data.replace(b'"lethe_bundle": 2', b'"lethe_bundle": 3', 1)),
    ("a model's history",
     lambda data: data.replace(b'"lethe_bundle": 2', b'"lethe_bundle": 1', 1)),
    ("no erasure", lambda data: data.replace(b'"erasure_id"', b'"name"', 1)),
    ("a model of 129 letters", lambda data: data.replace(
        b'"model_id": "linear"', b'"model_id": "%s"' % (b"x" * 129), 1)),
    ("a negative place", lambda data: data.replace(b'"index": ', b'"index": -', 1)),
    ("a path cut within a hash", lambda data: data.replace(b'"path": "', b'"path": "AAAA', 1)),
    ("two leaves", lambda data: data.replace(
        b'"leaf": "', b'"leaf": "' + base64.b64encode(bytes(33)), 1)),
    ("a proof that is none", lambda data: data.replace(
        b'{"inclusion": {', b'{"inclusion": [], "x": {', 1)),
    ("a salt that is none", lambda data: data.replace(b'"salt": "', b'"salt": "x', 1)),
    ("an opening that is none", lambda data: data.replace(
        b'{"opening": {', b'{"opening": null, "x": {', 1)),
)  # fmt: skip
"""Not read at all."""
