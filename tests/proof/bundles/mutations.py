"""Mutations of true bundles, drawn at random: what a forger without a key may try, and damage.

`draw` alters a bundle in one to four places. `same` says whether the outcome still tells what the
true bundle tells: a mutation that both verifiers let pass must be one of these.
"""

from __future__ import annotations

import base64
import json
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lethe.consumers.audit.published.bundle import BundleReader, Opening, Part
from lethe.consumers.audit.published.evidence import parse_evidence
from lethe.consumers.contract import topics, version_chain
from lethe.consumers.contract.signatures import HEADER
from lethe.consumers.log.base import Record
from lethe.engine.merkle import leaf_hash
from tests.support.bundles import (
    TYPES,
    Bundle,
    Line,
    content_of,
    put,
    sign,
    signature_of,
    strip,
    value_of,
)
from tests.support.forgeries import FORGER

Draw = random.Random
Mutation = Callable[[Bundle, Draw], object]

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, -1, 7, 0.0, -0.0, 1.0, 0.5, 1e300, 5e-324, 2**53 - 1, 2**53,
    -(2**53), 10**30, "", "0", "1", "x", "APPLIED", "REJECTED", "DEFERRED", "UNKNOWN_MODEL",
    "0" * 64, "2020-01-01T00:00:00.000Z", "2099-12-31T23:59:59.999Z", "2026-01-01T00:00:00Z",
    "2026-02-30T00:00:00.000Z", "https://forged.example", "\u00e9", "__proto__", [], [[]], {}, [1],
    ["x"], {"x": 1}, {"__proto__": []},
)  # fmt: skip
_TOKENS = (
    "1e400", "-1e400", "NaN", "Infinity", "1E0", "1e0", "-0", "-0.0", "01", "1.", ".5", "+1", "0x1",
    "1_0", "9007199254740993", "9" * 400, '"\\ud800"', '"\\ud83d\\ude00"', '"\\u0000"', '"\\q"',
    "'x'", "[1,]", "[", "}", "[" * 63 + "]" * 63, "[" * 65 + "]" * 65, '{"a":1,"a":1}',
    '{"a":1,"\\u0061":2}', "true ", "\t1", "\ufeff1", "",
)  # fmt: skip
_TOPICS = (
    *(topics.VERSIONS, topics.RECEIPTS, topics.MODELS, topics.DELETIONS, topics.COMMITS),
    topics.ERASURE_RECEIPTS,
    "constructor", "__proto__", "toString", "", "lethe.versions ", "\u0130",
)  # fmt: skip
_HEADERS: tuple[tuple[str, bytes], ...] = (
    ("ce_type", b"lethe.deletion.receipt.v1"), ("ce_type", b"\xef\xbb\xbflethe.model.version.v1"),
    ("CE_TYPE", b"x"), ("content-type", b"application/cloudevents+json"), ("", b""),
    ("content-type", b"text/plain"), ("lethe-signature", b""), ("Lethe-Signature", b"ed25519:x"),
    ("x", b"\xff"), ("__proto__", b"1"),
)  # fmt: skip


def _records(bundle: Bundle) -> list[Line]:
    return [line for line in bundle.lines if "topic" in line]


def _kinds(bundle: Bundle) -> list[str]:
    last = topics.ERASURE_RECEIPTS if _is_erasure(bundle) else topics.MODELS
    return [topics.VERSIONS, topics.RECEIPTS, last]


def _is_erasure(bundle: Bundle) -> bool:
    return bool(bundle.having("model_id")) or bool(bundle.of(topics.ERASURE_RECEIPTS))


def _one(bundle: Bundle, draw: Draw) -> Line:
    """Return a record; of each topic as often."""
    topic = draw.choice(_kinds(bundle))
    return draw.choice(bundle.of(topic) or _records(bundle) or [bundle.header])


# -- records ------------------------------------------------------------------------------------


def drop(bundle: Bundle, draw: Draw) -> None:
    bundle.remove(_one(bundle, draw))


def drop_all_of_a_topic(bundle: Bundle, draw: Draw) -> None:
    for line in bundle.of(draw.choice(_kinds(bundle))):
        bundle.remove(line)


def drop_the_newest(bundle: Bundle, draw: Draw) -> None:
    """Roll back: the newest versions, their receipts, and what their leaves were."""
    kept = draw.randrange(max(1, len(bundle.versions)))
    for line in bundle.versions[kept:]:
        requests = content_of(line)["request_ids"]
        bundle.remove(line)
        for receipt in bundle.receipts:
            if content_of(receipt)["request_id"] in requests:
                bundle.remove(receipt)


def repeat(bundle: Bundle, draw: Draw) -> None:
    line = json.loads(json.dumps(_one(bundle, draw)))
    line["offset"] = draw.choice([line["offset"], 999, 0])
    bundle.lines.insert(draw.randrange(1, len(bundle.lines)), line)


def exchange(bundle: Bundle, draw: Draw) -> None:
    one, other = _one(bundle, draw), _one(bundle, draw)
    for name in draw.choice([("value", "headers"), ("value",), ("headers",), ("offset",)]):
        one[name], other[name] = other.get(name), one.get(name)


def move(bundle: Bundle, draw: Draw) -> None:
    line = _one(bundle, draw)
    bundle.remove(line)
    bundle.lines.insert(draw.randrange(1, len(bundle.lines) + 1), line)


def place(bundle: Bundle, draw: Draw) -> None:
    line = _one(bundle, draw)
    line[draw.choice(["partition", "offset"])] = draw.choice(_VALUES)


def stored(bundle: Bundle, draw: Draw) -> None:
    """Pretend that the log has lost it and the state kept it."""
    line = _one(bundle, draw)
    line |= {"partition": -1, "offset": -1}
    if draw.random() < 0.5:
        strip(line)


def topic(bundle: Bundle, draw: Draw) -> None:
    _one(bundle, draw)["topic"] = draw.choice(_TOPICS)


def headers(bundle: Bundle, draw: Draw) -> None:
    name, value = draw.choice(_HEADERS)
    pairs = _one(bundle, draw).get("headers", [])
    pairs.insert(draw.randrange(len(pairs) + 1), [name, base64.b64encode(value).decode()])


def sign_as_forger(line: Line) -> None:
    sign(line, FORGER)


# -- what records say ---------------------------------------------------------------------------


def _object(line: Line) -> Any:
    try:
        return content_of(line)
    except (ValueError, KeyError):
        return {}


def member(bundle: Bundle, draw: Draw) -> Line:
    """Give a member of an event another value, and perhaps the signature that a forger has."""
    line = _one(bundle, draw)
    content = _object(line)
    if not isinstance(content, dict) or not content:
        return line
    others = ("note", "uri", "certificate", "columns", "classes")
    holder, name = content, draw.choice([*content, *others])
    while isinstance(holder.get(name), dict) and holder[name] and draw.random() < 0.8:
        holder = holder[name]
        name = draw.choice(list(holder))
    if draw.random() < 0.15:
        holder.pop(name, None)
    else:
        holder[name] = draw.choice(_VALUES)
    put(line, json.dumps(content).encode())
    if draw.random() < 0.4:
        draw.choice([strip, sign_as_forger])(line)
    return line


def member_and_links(bundle: Bundle, draw: Draw) -> None:
    """And make digests and links anew where that can be done."""
    member(bundle, draw)
    try:
        bundle.relink()
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, UnboundLocalError):
        return


def token(bundle: Bundle, draw: Draw) -> None:
    """Put a piece of JSON, or of what is none, in the place of a value."""
    line = _one(bundle, draw)
    text = value_of(line).decode(errors="replace") if "value" in line else "{}"
    places = [i + 1 for i, letter in enumerate(text) if letter == ":"]
    if not places:
        return
    begin = draw.choice(places)
    ends = [i for i in range(begin, len(text)) if text[i] in ",}]"]
    end = ends[0] if ends else len(text)
    data = (text[:begin] + draw.choice(_TOKENS) + text[end:]).encode("utf-8", "surrogatepass")
    put(line, data)


def reworded(bundle: Bundle, draw: Draw) -> None:
    """Write the same JSON in other words; unsigned where it was signed."""
    line = _one(bundle, draw)
    content = _object(line)
    put(line, json.dumps(content, indent=draw.choice([None, 1]), sort_keys=True).encode())
    if draw.random() < 0.5:
        strip(line)


def envelope(bundle: Bundle, draw: Draw) -> None:
    """Wrap an event into a CloudEvent."""
    line = _one(bundle, draw)
    kind = draw.choice(["lethe.model.version.v1", "lethe.deletion.receipt.v1", "x", None, 5])
    outer = {"specversion": "1.0", "type": kind, "id": "1", "source": "/x", "data": _object(line)}
    put(line, json.dumps(outer).encode())
    strip(line)


def bit(bundle: Bundle, draw: Draw) -> None:
    line = _one(bundle, draw)
    data = bytearray(value_of(line) if "value" in line else b"")
    if data:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    line["value"] = base64.b64encode(bytes(data)).decode()


def invented_receipt(bundle: Bundle, draw: Draw) -> None:
    if not bundle.receipts:
        return
    line = json.loads(json.dumps(draw.choice(bundle.receipts)))
    requests = ["made up", *(content_of(one)["request_id"] for one in bundle.receipts[:3])]
    changes = {
        "request_id": draw.choice(requests),
        "status": draw.choice(["APPLIED", "ALREADY_APPLIED", "REJECTED", "DEFERRED"]),
        "code": draw.choice([None, "UNKNOWN_MODEL", "REQUEST_ID_CONFLICT", "UNKNOWN_ROWS"]),
        "version": draw.choice([None, 0, 1, 2, 9]),
        "completed_at": draw.choice(["2020-01-01T00:00:00.000Z", "2099-01-01T00:00:00.000Z"]),
    }
    put(line, content_of(line) | changes)
    draw.choice([strip, sign_as_forger, value_of])(line)
    line["offset"] = 5000
    bundle.insert_after(bundle.receipts[-1], line)


def parameters_elsewhere(bundle: Bundle, draw: Draw) -> None:
    for line in bundle.of(topics.MODELS):
        uri = draw.choice([None, "", "https://forged.example"])
        content = content_of(line) | {"uri": uri}
        if draw.random() < 0.6:
            content |= {"theta": None, "intercept": None}
        put(line, content)
        strip(line)


# -- signatures ---------------------------------------------------------------------------------


def unsign(bundle: Bundle, draw: Draw) -> None:
    for line in draw.choice([_records(bundle), [_one(bundle, draw)], bundle.versions[:1]]):
        strip(line)


def sign_by_a_forger(bundle: Bundle, draw: Draw) -> None:
    for line in draw.choice([_records(bundle), [_one(bundle, draw)]]):
        if line["topic"] in TYPES:
            sign(line, FORGER)
    if draw.random() < 0.5:
        bundle.header["public_keys"] = [FORGER.public_text]


def lend_a_signature(bundle: Bundle, draw: Draw) -> None:
    """Use a true signature on another record."""
    signed = [line for line in _records(bundle) if dict(line["headers"]).get(HEADER)]
    if signed:
        line = _one(bundle, draw)
        strip(line)
        signature = base64.b64encode(signature_of(draw.choice(signed))).decode()
        line["headers"].append([HEADER, signature])


# -- the rest of the file -----------------------------------------------------------------------


def header(bundle: Bundle, draw: Draw) -> None:
    bundle.header[draw.choice([*bundle.header, "note"])] = draw.choice(_VALUES)


def begins(bundle: Bundle, draw: Draw) -> None:
    names = ["0", "1", "7", "-1", "01", "x", "__proto__", "1.0", "9" * 12]
    offsets = (*_VALUES, 1, 5, 1_000_000)
    bundle.header["receipts_begin"] = {draw.choice(names): draw.choice(offsets)}


def leaves(bundle: Bundle, draw: Draw) -> None:
    found = bundle.leaves
    if not found:
        return
    i, j = draw.randrange(len(found)), draw.randrange(len(found))
    changed: list[Sequence[bytes]] = [
        found[:i], found[i:], [], [*found[:i], *found[i + 1 :]], [*found, bytes(32)],
        [*found[:i], bytes(32), *found[i + 1 :]],
        [found[j] if k == i else found[i] if k == j else leaf for k, leaf in enumerate(found)],
    ]  # fmt: skip
    bundle.leaves = draw.choice(changed)


def pieces_of_leaves(bundle: Bundle, draw: Draw) -> None:
    found = bundle.leaves
    bundle.leaves = []
    for leaf in found:
        line = {"receipt_log": base64.b64encode(leaf).decode()}
        bundle.lines.insert(draw.choice([-1, len(bundle.lines) - 1]), line)


def last_line(bundle: Bundle, draw: Draw) -> None:
    bundle.lines[-1]["lethe_bundle_end"] = draw.choice(_VALUES)


def unknown_line(bundle: Bundle, draw: Draw) -> None:
    lines: tuple[Line, ...] = (
        {}, {"note": 1}, {"lethe_bundle": 1}, {"receipt_log": ""}, {"__proto__": {"topic": 1}},
    )  # fmt: skip
    bundle.lines.insert(draw.randrange(1, len(bundle.lines)), dict(draw.choice(lines)))


# -- of an erasure ------------------------------------------------------------------------------


def combined(bundle: Bundle, draw: Draw) -> None:
    """Let the combined receipt say something else, as a liar would, and perhaps sign it."""
    content = content_of(bundle.combined)
    model = draw.choice(content["models"] or [{}])
    lies: tuple[Callable[[], object], ...] = (
        lambda: content.update(draw.choice((
            {"status": "COMPLETE", "complete": True, "completed_at": "2099-01-01T00:00:00.000Z"},
            {"status": "PENDING", "complete": False, "completed_at": None},
            {"status": "INCOMPLETE", "complete": False}, {"op": "lift"}, {"unknown": True},
            {"erasure_id": "another"}, {"namespace": "crm"}, {"rows_deleted": 7}, {"models": []},
            {"subject_commitment": "0" * 64}, {"subject_commitment": None}, {"awaited": ["x"]},
            {"code": "REQUEST_ID_CONFLICT"}, {"completed_at": "2020-01-01T00:00:00.000Z"},
        ))),
        lambda: model.update(draw.choice((
            {"status": "APPLIED"}, {"status": "ALREADY_APPLIED", "rows_deleted": 0},
            {"status": "REJECTED", "code": "UNKNOWN_ROWS"}, {"status": "NOT_COVERED"},
            {"status": "REJECTED", "code": "REQUEST_ID_CONFLICT"}, {"model_id": "another"},
            {"status": "AWAITED"}, {"request_ids": []}, {"request_ids": ["x"]}, {"version": 0},
            {"rows_deleted": 99}, {"version": None}, {"code": "x"},
        ))),
        lambda: content["models"].remove(model),
        lambda: content["models"].append({**model, "model_id": "another"}),
    )  # fmt: skip
    for lie in draw.choices(lies, k=draw.choice((1, 1, 2))):
        lie()
    if draw.random() < 0.5:
        content["rows_deleted"] = sum(one.get("rows_deleted", 0) for one in content["models"])
    put(bundle.combined, content)
    draw.choice([strip, sign_as_forger, value_of])(bundle.combined)


def parts(bundle: Bundle, draw: Draw) -> None:
    """Drop, rename or repeat the line that names a model."""
    line = draw.choice(bundle.having("model_id"))
    if draw.random() < 0.3:
        bundle.remove(line)
    elif draw.random() < 0.5:
        names = [one["model_id"] for one in bundle.having("model_id")]
        line["model_id"] = draw.choice([*names, "another", "", 5, None, "x" * 129, "__proto__"])
    else:
        bundle.lines.insert(draw.randrange(1, len(bundle.lines)), dict(line))


def drop_a_part(bundle: Bundle, draw: Draw) -> None:
    """Forget a model: its line, its records, its proofs."""
    begin = draw.choice([i for i, line in enumerate(bundle.lines) if i and "model_id" in line])
    following = enumerate(bundle.lines[begin + 1 :], begin + 1)
    ends = {"model_id", "opening", "lethe_bundle_end"}
    end = next(i for i, line in following if ends & line.keys())
    del bundle.lines[begin:end]


def proof(bundle: Bundle, draw: Draw) -> None:
    """Alter a proof, exchange it, or drop it."""
    line = draw.choice(bundle.having("inclusion"))
    members = line["inclusion"]
    others = [one["inclusion"] for one in bundle.having("inclusion")]
    name = draw.choice([*members, "note"])
    chosen = draw.random()
    if chosen < 0.2:
        bundle.remove(line)
    elif chosen < 0.4:
        members[name] = draw.choice(others).get(name)
    elif chosen < 0.5:
        line["inclusion"] = draw.choice(_VALUES)
    elif chosen < 0.7:
        hashes = base64.b64decode(members["path"])
        pieces = (hashes[32:], hashes + bytes(32), hashes[:-1], bytes(32 * 65), hashes[::-1])
        members["path"] = base64.b64encode(draw.choice(pieces)).decode()
    else:
        members[name] = draw.choice(_VALUES)


def opening(bundle: Bundle, draw: Draw) -> None:
    """Say that the erasure is of somebody else; or strip what says of whom it is."""
    lines = bundle.having("opening")
    if not lines or draw.random() < 0.2:
        made = {"subject_id": draw.choice(["h5", "somebody else"]), "salt": "0" * 64}
        bundle.lines.insert(-1, {"opening": made})
        return
    members = lines[0]["opening"]
    if draw.random() < 0.2:
        bundle.remove(lines[0])
    else:
        salts = ("0" * 64, members["salt"].upper(), members["salt"][:-1], members["salt"] + "0")
        name = draw.choice(["subject_id", "salt", "note"])
        more = salts if name == "salt" else ("h6", "h5 ", "H5", "")
        members[name] = draw.choice([*more, draw.choice(_VALUES)])


def of_the_other_kind(bundle: Bundle, draw: Draw) -> None:
    """Pretend that it is the history of a model, or the evidence of an erasure."""
    names = {
        "lethe_bundle": draw.choice([1, 2, 3, 2.0]),
        "model_id": "linear",
        "erasure_id": "gone",
    }
    chosen = draw.sample(sorted(names), draw.choice((1, 2, 3)))
    bundle.header.update({name: names[name] for name in chosen})


ERASURE_MUTATIONS: tuple[Mutation, ...] = (
    combined, combined, combined, combined, parts, parts, drop_a_part, proof, proof, proof, opening,
    opening, of_the_other_kind,
)  # fmt: skip
"""Drawn together with the others, for the evidence of an erasure."""

MUTATIONS: tuple[Mutation, ...] = (
    drop, drop_all_of_a_topic, drop_the_newest, repeat, exchange, move, place, stored, topic,
    headers, member, member, member, member_and_links, member_and_links, token, token, token,
    reworded, envelope, bit, invented_receipt, parameters_elsewhere, unsign, sign_by_a_forger,
    lend_a_signature, header, begins, leaves, pieces_of_leaves, last_line, unknown_line,
    of_the_other_kind,
)  # fmt: skip
_TOGETHER = (drop_all_of_a_topic, begins, leaves, unsign)
"""What hides something only together."""


def damaged(data: bytes, draw: Draw) -> bytes:
    """Damage the text of a bundle, which `Bundle` would write well-formed."""
    at = draw.randrange(len(data))
    pieces = (
        b"\xef\xbb\xbf", b"\x00", b"\n", b"\r\n", b" ", b"\t", b"\xc2\xa0", b"\xff",
        b"\xed\xa0\x80", b"{", b"}", b'"', b",", b"1", b"-", b".0", b"=", b"e1", b"NaN", b"null",
        b"\\u0041",
    )  # fmt: skip
    commas = [i for i, letter in enumerate(data) if letter == ord(",")]
    near = draw.choice(commas)
    return draw.choice((
        lambda: data[:at] + draw.choice(pieces) + data[at:],
        lambda: data[:near] + draw.choice(pieces) + data[near:],
        lambda: draw.choice(pieces) + data,
        lambda: data + draw.choice(pieces),
        lambda: data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :],
        lambda: data[:at] + data[at + draw.randrange(1, 40) :],
        lambda: data[:at],
        lambda: data.replace(b"\n", b"\r\n"),
        lambda: data.replace(b": ", b":\t "),
        lambda: data.replace(b"0", b"0.0", draw.randrange(1, 4)),
        lambda: data.replace(b'"offset"', b'"offset": 0, "offset"', 1),
    ))()  # fmt: skip


def draw_mutant(true: Path, seed: int) -> tuple[str, bytes]:
    """Return the names of what was done to a true bundle, and the outcome."""
    draw = random.Random(seed)
    bundle, names = Bundle.read(true), []
    several = (*MUTATIONS, *ERASURE_MUTATIONS, *ERASURE_MUTATIONS)
    mutations = several if _is_erasure(bundle) else MUTATIONS
    chosen = draw.sample(_TOGETHER, 3) if draw.random() < 0.1 else draw.choices(
        mutations, k=draw.choice((1, 1, 1, 2, 3))
    )  # fmt: skip
    raw = draw.random() < 0.2
    for mutation in () if raw else chosen:
        names.append(mutation.__name__)
        try:
            mutation(bundle, draw)
        except (ValueError, LookupError, TypeError, AttributeError, StopIteration):
            names.append("(in part)")  # an earlier one left nothing to take hold of
    text = bundle.text().encode("utf-8", "surrogatepass")
    return ("damaged", damaged(text, draw)) if raw else (", ".join(names), text)


# -- what a bundle tells ------------------------------------------------------------------------


def same(true: Path, mutant: Path) -> bool:
    """Return whether a bundle that was let pass tells what the true one tells.

    Every version is there; every receipt is true, and none is missing of those that the newest
    version's receipt log covers; parameters are the true ones.
    """
    if _is_erasure(Bundle.read(true)):
        return _same_erasure(true, mutant)
    one, other = _told(true), _told(mutant)
    heads = [json.loads(value)["receipt_log"]["size"] for value in one[topics.VERSIONS]]
    covered = set(Bundle.read(true).leaves[: max(heads)])
    receipts = {leaf_hash(value) for value in other[topics.RECEIPTS]}
    known = {leaf_hash(value) for value in one[topics.RECEIPTS]}
    return (
        _contents(one[topics.VERSIONS]) == _contents(other[topics.VERSIONS])
        and receipts <= known
        and covered & known <= receipts
        and _contents(one[topics.MODELS]) == _contents(other[topics.MODELS])
    )


def _same_erasure(true: Path, mutant: Path) -> bool:
    """Return whether the evidence of an erasure tells what the true one tells.

    The combined receipt is the true one; every answer of a model is there, in the part of that
    model, and no other; versions are true ones; and if somebody is named, it is the right person.
    """
    one, other = _told_of_erasure(true), _told_of_erasure(mutant)
    names = {part for part, _ in one}
    return names >= {part for part, _ in other} and all(
        other[place] == told if place[1] in _ANSWERS else other[place] <= told
        for place, told in one.items()
    )


_ANSWERS = (topics.ERASURE_RECEIPTS, topics.RECEIPTS)


def _told_of_erasure(path: Path) -> defaultdict[tuple[str, str], set[bytes]]:
    """Return what is told of each model, by topic; of the erasure under the empty name."""
    told, part = defaultdict[tuple[str, str], set[bytes]](set), ""
    with BundleReader(path) as reader:
        for item in reader:
            if isinstance(item, Part):
                part = item.model_id
            elif isinstance(item, Record):
                topic = item.partition.topic
                place = "" if topic == topics.ERASURE_RECEIPTS else part
                told[place, topic] |= _contents([item.value or b""])
            elif isinstance(item, Opening):
                told["", "opening"].add(item.subject_id.encode())
    return told


def _told(path: Path) -> dict[str, list[bytes]]:
    told: dict[str, list[bytes]] = {topics.VERSIONS: [], topics.RECEIPTS: [], topics.MODELS: []}
    with BundleReader(path) as reader:
        for item in reader:
            if isinstance(item, Record):
                told[item.partition.topic].append(item.value or b"")
    return told


def _contents(values: Sequence[bytes]) -> set[bytes]:
    """Return events in canonical form, without members at nothing."""
    events = [parse_evidence(value) for value in values]
    events = [event.get("data", event) if "specversion" in event else event for event in events]
    return {
        version_chain.canonical({name: one for name, one in event.items() if one is not None})
        for event in events
    }
