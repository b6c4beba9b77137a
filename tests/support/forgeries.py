"""The table of what is done to bundles, and what both verifiers must say of it.

``lethe audit --bundle`` and the page give the same results on every line of it
(`tests/proof/bundles`); each table says which.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.consumers.contract.signatures import Signer
from lethe.engine.merkle import leaf_hash
from tests.support.bundles import (
    Bundle,
    Forgery,
    Line,
    change,
    content_of,
    put,
    put_signature,
    sign,
    signature_of,
    strip,
    value_of,
)

FORGER = Signer(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
"""A key that nobody trusts."""


def flip(line: Line, place: int = -2) -> None:
    """Flip one bit of a record's value."""
    data = bytearray(value_of(line))
    data[place] ^= 1
    line["value"] = base64.b64encode(bytes(data)).decode()


def flip_digit(line: Line, name: str) -> None:
    """Change one digit of a number, so that the JSON still parses."""
    text = value_of(line).decode()
    before, _, after = text.partition(f'"{name}":')
    digit = next(i for i, letter in enumerate(after) if letter.isdigit())
    other = "1" if after[digit] != "1" else "2"
    put(line, f'{before}"{name}":{after[:digit]}{other}{after[digit + 1 :]}'.encode())


def flip_signature(line: Line) -> None:
    signature = bytearray(signature_of(line))
    place = signature.rindex(b":") + 5
    signature[place] = ord("A") if signature[place] != ord("A") else ord("B")
    put_signature(line, bytes(signature))


def swap_values(one: Line, other: Line) -> None:
    """Exchange two records, signatures and all; their offsets stay in order."""
    for name in ("value", "headers"):
        one[name], other[name] = other[name], one[name]


def swap_lines(bundle: Bundle, one: Line, other: Line) -> None:
    """Exchange two lines, their offsets with them."""
    i = next(i for i, line in enumerate(bundle.lines) if line is one)
    j = next(i for i, line in enumerate(bundle.lines) if line is other)
    bundle.lines[i], bundle.lines[j] = bundle.lines[j], bundle.lines[i]


def applied(bundle: Bundle, place: int = 0) -> Line:
    """Return the receipt of one of the applied requests, where it stands first."""
    found: dict[bytes, Line] = {}
    for line in bundle.receipts:
        if content_of(line)["status"] == "APPLIED":
            found.setdefault(value_of(line), line)
    return list(found.values())[place]


def forked(bundle: Bundle) -> None:
    """Add a second version of the same number, complete and consistent in itself."""
    last = bundle.versions[-1]
    twin = json.loads(json.dumps(last))
    put(twin, content_of(last) | {"created_at": "2020-01-01T00:00:00.000Z"})
    twin["offset"] += 1
    bundle.insert_after(last, twin)
    copy = bundle.copy()
    kept = [line for line in copy.versions if line["offset"] != last["offset"]]
    copy.lines = [copy.header, *kept, copy.parameters]
    copy.relink()
    twin["value"] = kept[-1]["value"]


def without_last_version(bundle: Bundle) -> None:
    """Forget the newest version, as if it had never been: only a checkpoint shows it."""
    last = bundle.versions[-1]
    requests = content_of(last)["request_ids"]
    bundle.remove(last)
    for line in bundle.receipts:
        if content_of(line)["request_id"] in requests:
            bundle.remove(line)


def without_receipt(bundle: Bundle, *, log_too: bool = False) -> None:
    gone = applied(bundle)
    bundle.remove(gone)
    if log_too:
        leaf = leaf_hash(value_of(gone))
        bundle.leaves = [one for one in bundle.leaves if one != leaf]


def other_outcome(bundle: Bundle) -> None:
    """Give a request a second final receipt."""
    first = applied(bundle)
    second = json.loads(json.dumps(bundle.receipts[-1]))
    put(second, content_of(first) | {"rows_deleted": 0, "status": "ALREADY_APPLIED"})
    second["offset"] += 1
    bundle.insert_after(bundle.receipts[-1], second)


def rewritten(bundle: Bundle) -> None:
    """Claim fewer live rows from version 1 on, with digests, links and tree heads made anew."""
    for line in bundle.versions[1:]:
        change(line, rows_live=content_of(line)["rows_live"] - 1)
    bundle.relink()


def resigned(bundle: Bundle) -> None:
    bundle.sign(FORGER)
    bundle.header["public_keys"] = [FORGER.public_text]


def altered_receipt_in_log(bundle: Bundle) -> None:
    """Alter a receipt, and put it into the leaves; the tree heads are in the versions."""
    line = applied(bundle)
    before = leaf_hash(value_of(line))
    change(line, rows_unknown=7)
    after = leaf_hash(value_of(line))
    bundle.leaves = [after if leaf == before else leaf for leaf in bundle.leaves]


def giant_log(bundle: Bundle) -> None:
    content = content_of(bundle.versions[-1])
    change(bundle.versions[-1], receipt_log=content["receipt_log"] | {"size": 10**9})
    bundle.relink()


def member(topic: Callable[[Bundle], Line], **members: object) -> Callable[[Bundle], object]:
    return lambda bundle: change(topic(bundle), **members)


def last_version(bundle: Bundle) -> Line:
    return bundle.versions[-1]


def then(*steps: Callable[[Bundle], object]) -> Callable[[Bundle], object]:
    """Return one forgery after another."""

    def forge(bundle: Bundle) -> None:
        for step in steps:
            step(bundle)

    return forge


def no_versions(bundle: Bundle) -> None:
    for line in bundle.versions:
        bundle.remove(line)


def headless(bundle: Bundle) -> None:
    content = content_of(last_version(bundle))
    del content["receipt_log"]
    put(last_version(bundle), content)
    bundle.relink()


def unsigned(bundle: Bundle) -> None:
    for line in bundle.lines:
        if "topic" in line:
            strip(line)


def reworded(line: Line, before: str, after: str) -> None:
    """Replace a piece of a record's JSON, once."""
    text = value_of(line).decode()
    assert before in text, f"{before} is not in {text[:300]}"
    put(line, text.replace(before, after, 1).encode())


def word(topic: Callable[[Bundle], Line], before: str, after: str) -> Callable[[Bundle], object]:
    return lambda bundle: reworded(topic(bundle), before, after)


def parameters(bundle: Bundle) -> Line:
    return bundle.parameters


def made_up_receipt(bundle: Bundle, **members: object) -> None:
    """Add an answer from before there were keys, which nobody signed."""
    last = bundle.receipts[-1]
    new = json.loads(json.dumps(last))
    put(new, content_of(applied(bundle)) | {
        "request_id": "made up", "status": "REJECTED", "code": "UNKNOWN_ROWS", "version": None,
        "generation": None, "rows_deleted": 0, "completed_at": "2020-01-01T00:00:00.000Z",
    } | members)  # fmt: skip
    strip(new)
    new["offset"] += 1
    bundle.insert_after(last, new)


def no_receipts(bundle: Bundle) -> None:
    """Claim that they have all expired."""
    for line in bundle.receipts:
        bundle.remove(line)
    bundle.header["receipts_begin"] = {"0": 1_000_000}


def older_parameters(bundle: Bundle) -> None:
    """Add parameters of an older version, consistent in themselves, which nobody signed."""
    old = content_of(bundle.versions[1])
    new = json.loads(json.dumps(bundle.parameters))
    names = ("version", "prev_digest", "digest", "generation", "created_at", "status", "method")
    put(new, content_of(new) | {name: old[name] for name in names})
    strip(new)
    new["offset"] += 1 if new["offset"] >= 0 else 0
    bundle.insert_after(bundle.parameters, new)


def again(bundle: Bundle) -> None:
    """Repeat every record, as a fold does that publishes again."""
    lines = [line for line in bundle.lines if "topic" in line]
    repeats = json.loads(json.dumps(lines))
    for line in repeats:
        line["offset"] += 1000 if line["offset"] >= 0 else 0
    bundle.lines[-1:-1] = repeats


AMBIGUOUS: tuple[Forgery, ...] = tuple(
    Forgery(name, forge, "records")
    for name, forge in (
        ("a version as text", word(applied, '"version":1', '"version":"1"')),
        ("a version that is true", word(applied, '"version":1', '"version":true')),
        ("a version with a fraction", word(applied, '"version":1', '"version":1.5')),
        ("a version of minus nothing", word(lambda b: b.receipts[0], '"rows_unknown":0',
                                            '"rows_unknown":-0.0')),
        ("2^53", word(applied, '"rows_unknown":0', '"rows_unknown":9007199254740992')),
        ("a number beyond float64", word(applied, "{", '{"note":1e400,')),
        ("NaN", word(applied, "{", '{"note":NaN,')),
        ("half a surrogate pair", word(applied, "{", '{"note":"\\ud800",')),
        ("a member twice", word(applied, "{", '{"status":"REJECTED",')),
        ("deep nesting", word(applied, "{", '{"note":' + "[" * 80 + "]" * 80 + ",")),
        ("bytes that are not UTF-8",
         lambda b: put(applied(b), value_of(applied(b)).replace(b"APPLIED", b"APPL\xc3ED"))),
        ("a byte order mark", lambda b: put(applied(b), b"\xef\xbb\xbf" + value_of(applied(b)))),
        ("a byte order mark before its type", lambda b: applied(b)["headers"].append(
            ["ce_type", base64.b64encode(b"\xef\xbb\xbflethe.deletion.receipt.v1").decode()])),
        ("UTF-16", lambda b: put(applied(b), value_of(applied(b)).decode().encode("utf-16"))),
        ("a time without a zone", member(applied, completed_at="2026-01-01T00:00:00.000")),
        ("a time in another zone", member(applied, completed_at="2026-01-01T00:00:00.000+01:00")),
        ("a number as a time", member(applied, completed_at=1_767_225_600)),
        ("February 30", member(applied, completed_at="2026-02-30T00:00:00.000Z")),
        ("the hour 24", member(applied, completed_at="2026-02-03T24:00:00.000Z")),
        ("the year 0", member(applied, completed_at="0000-02-03T00:00:00.000Z")),
        ("a certificate that is none", member(applied, certificate={"epsilon": 1})),
        ("parameters of text", member(parameters, intercept="0")),
        ("ragged parameters", lambda b: change(
            b.parameters, theta=[content_of(b.parameters)["theta"][:1],
                                 content_of(b.parameters)["theta"][1:]])),
        ("columns with an unknown step", member(parameters, columns=[{"name": "x", "step": "y"}])),
        ("a topic that is a name of JavaScript",
         lambda b: applied(b).update(topic="constructor")),
        ("another", lambda b: applied(b).update(topic="__proto__")),
        ("a topic without a name", lambda b: applied(b).update(topic="")),
    )
)  # fmt: skip
"""What two programs could read in two ways: refused, and by the check `records`."""


SIGNED_OR_NOT: tuple[Forgery, ...] = (
    *AMBIGUOUS,
    Forgery("a bit of a version", lambda b: flip_digit(b.versions[1], "rows_live"), "records"),
    Forgery("a bit of its JSON", lambda b: flip(b.versions[1], 0), "records"),
    Forgery("a bit of its link", lambda b: flip_digit(b.versions[1], "prev_digest"), "records"),
    Forgery("a bit of a receipt", lambda b: flip_digit(applied(b), "rows_deleted"), "rows deleted"),
    Forgery("a bit of a receipt's JSON", lambda b: flip(applied(b), 0), "records"),
    Forgery("a bit of theta", lambda b: flip_digit(b.parameters, "theta"), "parameters"),
    Forgery("a bit of their digest", lambda b: flip_digit(b.parameters, "digest"), "parameters"),
    Forgery("a link is dropped", lambda b: b.remove(b.versions[1]), "chain"),
    Forgery("the first link is dropped", lambda b: b.remove(b.versions[0]), "chain"),
    Forgery("all versions are dropped", no_versions, "chain"),
    Forgery("a receipt is dropped", without_receipt, "receipts"),
    Forgery("and from the leaves", lambda b: without_receipt(b, log_too=True), "receipt log"),
    Forgery("versions in another order", lambda b: swap_values(*b.versions[1:3]), "chain"),
    Forgery("lines in another order", lambda b: swap_lines(b, *b.versions[1:3]), "chain"),
    Forgery("receipts in another order",
            lambda b: swap_values(applied(b), applied(b, -1)), "receipts"),
    Forgery("their lines as well", lambda b: swap_lines(b, applied(b), applied(b, -1)), "chain"),
    Forgery("two leaves exchanged",
            lambda b: setattr(b, "leaves", [b.leaves[1], b.leaves[0], *b.leaves[2:]]),
            "receipt log"),
    Forgery("a leaf is dropped", lambda b: setattr(b, "leaves", b.leaves[1:]), "receipt log"),
    Forgery("a leaf is added",
            lambda b: setattr(b, "leaves", [bytes(32), *b.leaves]), "receipt log"),
    Forgery("an altered receipt in the leaves", altered_receipt_in_log, "receipt log"),
    Forgery("a fork", forked, "chain"),
    Forgery("a second outcome", other_outcome, "receipts"),
    Forgery("a receipt of another version",
            lambda b: change(applied(b), version=content_of(applied(b))["version"] + 1),
            "receipts"),
    Forgery("a receipt that nobody lists",
            lambda b: change(applied(b), request_id="made up"), "receipts"),
    Forgery("a receipt that nobody lists, of no version",
            lambda b: made_up_receipt(b, status="APPLIED", code=None), "receipts"),
    Forgery("a receipt of another model",
            member(applied, model_id="another"), "records"),
    Forgery("a version of another model", member(last_version, model_id="another"), "records"),
    Forgery("the history under another name",
            lambda b: b.header.update(model_id="another"), "records"),
    Forgery("rows_deleted in a version, made anew",
            then(member(last_version, rows_deleted=99), Bundle.relink), "rows deleted"),
    Forgery("rows_live in versions, made anew", rewritten, "rows deleted"),
    Forgery("a tree head of 1,000,000,000 receipts", giant_log, "receipt log"),
    Forgery("a tree head that is none",
            then(member(last_version, receipt_log={"size": -1, "root": "x"}), Bundle.relink),
            "records"),
    Forgery("no tree head any more", headless, "receipt log"),
    Forgery("an earlier commit in a version, made anew",
            then(member(last_version, commit=0), Bundle.relink), "chain"),
    Forgery("parameters of an older version", lambda b: change(
        b.parameters, version=content_of(b.versions[-1])["version"] + 1), "parameters"),
    Forgery("a record of a foreign topic",
            lambda b: b.versions[1].update(topic="lethe.deletions"), "records"),
)  # fmt: skip
"""Invalid whether or not keys are trusted: history contradicts itself."""

SIGNED: tuple[Forgery, ...] = (
    Forgery("a bit of a version's signature",
            lambda b: flip_signature(b.versions[0]), "signatures"),
    Forgery("of the newest version's", lambda b: flip_signature(b.versions[-1]), "signatures"),
    Forgery("of a receipt's", lambda b: flip_signature(applied(b)), "signatures"),
    Forgery("of the parameters'", lambda b: flip_signature(b.parameters), "signatures"),
    Forgery("another record's signature",
            lambda b: put_signature(b.versions[0], signature_of(b.versions[1])), "signatures"),
    Forgery("a version signed by another key",
            lambda b: sign(b.versions[-1], FORGER), "signatures"),
    Forgery("a receipt signed by another key", lambda b: sign(applied(b), FORGER), "signatures"),
    Forgery("everything signed by another key", resigned, "signatures"),
    Forgery("the newest version is not signed", lambda b: strip(b.versions[-1]), "signatures"),
    Forgery("nothing is signed", unsigned, "signatures"),
    Forgery("a history made anew, signed by another key",
            then(rewritten, resigned), "signatures"),
    Forgery("a header twice", lambda b: b.versions[0]["headers"].append(
        b.versions[0]["headers"][-1]), "signatures"),
)  # fmt: skip
"""Invalid because keys are trusted."""

UNPROVED: tuple[Forgery, ...] = (
    Forgery("an unsigned receipt from before the keys", made_up_receipt, "signatures"),
    Forgery("unsigned parameters that are elsewhere",
            then(member(parameters, theta=None, intercept=None, uri="https://forged.example"),
                 lambda b: strip(b.parameters)), "signatures"),
    Forgery("unsigned parameters that are elsewhere, too",
            then(member(parameters, uri="https://forged.example"),
                 lambda b: strip(b.parameters)), "signatures"),
    Forgery("unsigned parameters with a member that no digest covers",
            then(member(parameters, note="x"), lambda b: strip(b.parameters)), "signatures"),
    Forgery("unsigned parameters of another time",
            then(member(parameters, created_at="2020-01-01T00:00:00.000Z"),
                 lambda b: strip(b.parameters)), "signatures"),
    Forgery("unsigned parameters of an older version", older_parameters, "signatures"),
    Forgery("no parameters", lambda b: b.remove(b.parameters), "parameters"),
    Forgery("no receipts, after a later beginning", no_receipts, "receipts"),
    Forgery("nor leaves", then(no_receipts, lambda b: setattr(b, "leaves", [])), "receipt log"),
    Forgery("a receipt less, after a later beginning",
            then(lambda b: b.remove(applied(b, -1)),
                 lambda b: b.header.update(receipts_begin={"0": 1})),
            "rows deleted"),
)  # fmt: skip
"""Not refused where keys are trusted, for true histories may look like it; but never proved."""

HARMLESS: tuple[Forgery, ...] = (
    Forgery("nothing", lambda _: None, ""),
    Forgery("no keys of its own", lambda b: b.header.update(public_keys=[]), ""),
    Forgery("keys that are none", lambda b: b.header.update(public_keys=[1, None, ["x"]]), ""),
    Forgery("another time of export", lambda b: b.header.update(exported_at=None), ""),
    Forgery("what witnesses have seen, for whom nobody asks",
            lambda b: b.lines.insert(-1, {"checkpoint": "x"}), ""),
    Forgery("and in another form", lambda b: b.lines.insert(1, {"checkpoint": ["x"]}), ""),
    Forgery("a line that nobody knows", lambda b: b.lines.insert(3, {"note": "x"}), ""),
    Forgery("members that nobody knows", lambda b: applied(b).update(note={"x": [None]}), ""),
    Forgery("everything twice", again, ""),
    Forgery("parameters that are vouched for", lambda b: strip(b.parameters), ""),
    Forgery("a receipt that is vouched for", lambda b: strip(applied(b)), ""),
    Forgery("old versions that are vouched for", lambda b: strip(b.versions[0]), ""),
    Forgery("a later beginning, but all is there",
            lambda b: b.header.update(receipts_begin={"7": 9}), ""),
    Forgery("no beginning", lambda b: b.header.pop("receipts_begin", None), ""),
    Forgery("partitions as floats", lambda b: applied(b).update(partition=float(
        applied(b)["partition"])), ""),
    Forgery("headers in capitals", lambda b: [pair.__setitem__(0, pair[0].upper())
                                              for pair in applied(b)["headers"]], ""),
    Forgery("leaves one by one", lambda b: b.lines.__setitem__(slice(-2, -1), [
        {"receipt_log": base64.b64encode(leaf).decode()} for leaf in b.leaves]), ""),
)  # fmt: skip
"""The same history: no check fails, and with keys that are trusted it is proved."""

SEEN: tuple[Forgery, ...] = (
    Forgery("the newest version is forgotten", without_last_version, "checkpoint"),
    Forgery("history made anew from version 1 on, in itself consistent",
            then(member(lambda b: b.versions[1], created_at="2020-01-01T00:00:00.000Z"),
                 Bundle.relink), "checkpoint"),
)  # fmt: skip
"""Invalid because of a checkpoint; the second also because of signatures."""

FORGERIES = 2 * len(SIGNED_OR_NOT) + len(SIGNED) + len(SEEN)
"""Those before them are tried without and with keys; docs/console.md has the figure."""

UNREADABLE: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
    ("an empty file", lambda data: data[:0]),
    ("cut within a line", lambda data: data[: len(data) // 2]),
    ("cut after a line", lambda data: data[: data.rindex(b"\n", 0, -1) + 1]),
    ("cut before the last byte", lambda data: data[:-1]),
    ("something behind it", lambda data: data + b"{}\n"),
    ("a count that is not its own", lambda data: data.replace(b'"records": ', b'"records": 1')),
    ("no JSON", lambda data: b"\x00" + data[1:]),
    ("a list", lambda data: b"[]\n" + data),
    ("deep nesting", lambda data: b"[" * 200_000 + b"\n" + data),
    ("a giant number", lambda data: data.replace(b'le": 1', b'le": ' + b"9" * 9999, 1)),
    ("another form", lambda data: data.replace(b'"lethe_bundle": 1', b'"lethe_bundle": 2')),
    ("an offset of text", lambda data: data.replace(b'"offset": 0', b'"offset": "0"', 1)),
    ("headers of numbers", lambda data: data.replace(b'"headers": [', b'"headers": [1, ', 1)),
    ("no base64", lambda data: data.replace(b'"value": "', b'"value": "*', 1)),
    ("a byte order mark", lambda data: b"\xef\xbb\xbf" + data),
    ("UTF-16", lambda data: data.decode().encode("utf-16-le")),
    ("bytes that are not UTF-8", lambda data: data.replace(b'"topic"', b'"\xff": 1, "topic"', 1)),
    ("a member twice", lambda data: data.replace(b'"offset": 0', b'"offset": 0, "offset": 0', 1)),
    ("NaN", lambda data: data.replace(b'"offset": 0', b'"note": NaN, "offset": 0', 1)),
    ("half a surrogate pair",
     lambda data: data.replace(b'"offset": 0', b'"note": "\\ud800", "offset": 0', 1)),
    ("a negative offset", lambda data: data.replace(b'"offset": 0', b'"offset": -5', 1)),
    ("an offset without a partition",
     lambda data: data.replace(b'"offset": 0', b'"offset": -1', 1)),
    ("an offset of minus nothing", lambda data: data.replace(b'"offset": 0', b'"offset": -0.0', 1)),
    ("a fraction", lambda data: data.replace(b'"offset": 0', b'"offset": 0.5', 1)),
    ("an offset of 2^53",
     lambda data: data.replace(b'"offset": 0', b'"offset": 9007199254740992', 1)),
    ("no offset", lambda data: data.replace(b'"offset": 0', b'"offset": null', 1)),
    ("a form that is true", lambda data: data.replace(b'_bundle": 1', b'_bundle": true', 1)),
    ("a beginning of text",
     lambda data: data.replace(b'"receipts_begin": {', b'"receipts_begin": {"0": "1", ', 1)),
    ("a beginning below 0",
     lambda data: data.replace(b'"receipts_begin": {', b'"receipts_begin": {"3": -1, ', 1)),
    ("a partition that is none",
     lambda data: data.replace(b'"receipts_begin": {', b'"receipts_begin": {" 1": 1, ', 1)),
    ("a name of 129 letters", lambda data: data.replace(b'"churn"', b'"%s"' % (b"x" * 129), 1)),
    ("base64 with too much padding",
     lambda data: data.replace(b'"headers": [[', b'"headers": [["x", "AAAA=="], [', 1)),
    ("base64 that is not its own",
     lambda data: data.replace(b'"headers": [[', b'"headers": [["x", "AB=="], [', 1)),
    ("base64 with spaces",
     lambda data: data.replace(b'"headers": [[', b'"headers": [["x", "AA AA"], [', 1)),
    ("leaves cut within a hash",
     lambda data: data.replace(b'"receipt_log": "', b'"receipt_log": "AAAA', 1)),
)  # fmt: skip
"""Not read at all: the exit code is 2."""
