"""Attacks by somebody who may write to ``lethe.commits``, and perhaps knows the seal key."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from lethe.consumers.commits.frame import COMMIT, FORMAT, Framed, decode_frame, join_frame
from lethe.consumers.commits.record import encode, open_commit
from lethe.consumers.contract import topics
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.registration.log_loss import Recovery
from lethe.engine.store.layout.config import LimitsRecord
from lethe.engine.store.layout.keys import COMMIT_PARTITIONS, ModelKeys, commit_partition
from tests.proof.attacks.attack import Act, Attack, Trace
from tests.proof.attacks.world import (
    LINE,
    LOGIT,
    SIGNER,
    STRANGER,
    TRUSTED,
    World,
    data_of_kind,
)
from tests.support.commit_records import framed, record_of
from tests.support.platform import config_of, training_data
from tests.support.stores import backup, restore

OTHER_SECRET = bytes(reversed(range(32)))
Make = Callable[[World], bytes | None]


# -- records --------------------------------------------------------------------------------------


def head_of(world: World, model: str = LINE) -> tuple[int, str]:
    """Return number and digest of a model's newest commit, which open parts say."""
    head = world.platform.load(model).head
    return head.commit, head.digest


def commits_of(world: World, model: str = LINE) -> list[tuple[bytes, Framed]]:
    """Return a model's records in order."""
    found = []
    for record in world.platform.records(topics.COMMITS):
        frame = decode_frame(record.value)
        if frame is not None and frame.open.model_id == model:
            found.append((record.value or b"", frame))
    return found


def puts(make: Make, *, model: str = LINE, shift: int = 0, copies: int = 1) -> Act:
    """Return what writes a record to a model's partition, or ``shift`` beyond it."""

    def act(world: World) -> Sequence[Trace]:
        index = (commit_partition(model) + shift) % COMMIT_PARTITIONS
        value = make(world)
        return [world.forge(topics.COMMITS, model, value, partition=index) for _ in range(copies)][
            -1:
        ]

    return act


def first(world: World) -> bytes:
    return commits_of(world)[0][0]


def newest(world: World) -> bytes:
    return commits_of(world)[-1][0]


def continuing(ahead: int = 1, prev: str = "", **fields: Any) -> Make:
    """Return a record that continues a model's newest commit; nothing opens what it seals."""

    def make(world: World) -> bytes:
        number, digest = head_of(world)
        given = {"model_id": LINE, "commit": number + ahead, "prev": prev or digest, **fields}
        return record_of(**given)

    return make


def sealed_again(seals: SealKeys | None = None, signer: Any = STRANGER, name: str = "") -> Make:
    """Return a true commit as the next one: by somebody with the seal key, or with another."""

    def make(world: World) -> bytes:
        frame = commits_of(world)[1][1]
        state = world.platform.load(LINE)
        commit = open_commit(frame, world.platform.seals, None, state.meta.config)
        number, digest = head_of(world)
        commit = replace(commit, number=number + 1, prev=digest)
        value, _ = encode(commit, seals or world.platform.seals, signer)
        if name:
            mine = decode_frame(value)
            assert mine is not None
            part = json.loads(mine.associated) | {"key": world.platform.seals.current}
            value = join_frame(json.dumps(part).encode(), mine.sealed, mine.signature)
        return value

    return make


def spliced(world: World) -> bytes:
    """Return a record with the sealed part and signature of a true one and another open part."""
    frame = commits_of(world)[2][1]
    number, digest = head_of(world)
    part = json.loads(frame.associated) | {"commit": number + 1, "prev": digest}
    return join_frame(json.dumps(part).encode(), frame.sealed, frame.signature)


def flipped(world: World) -> bytes:
    frame = commits_of(world)[-1][1]
    data = bytearray(frame.sealed)
    data[40] ^= 1
    return join_frame(frame.associated, bytes(data), frame.signature)


def raw_part(part: bytes) -> Make:
    return lambda _world: COMMIT.encode() + b"\n" + framed(part) + framed(bytes(64)) + framed(b"")


def all_backwards(world: World) -> Sequence[Trace]:
    """Write all commits of both models again, the newest first."""
    traces = []
    for model in (LINE, LOGIT):
        for value, _ in reversed(commits_of(world, model)):
            traces.append(
                world.forge(topics.COMMITS, model, value, partition=commit_partition(model))
            )
    return traces


def everywhere(make: Make) -> Act:
    """Return what writes a record to each partition but its model's."""

    def act(world: World) -> Sequence[Trace]:
        here, value = commit_partition(LINE), make(world)
        return [
            world.forge(topics.COMMITS, LINE, value, partition=i)
            for i in range(COMMIT_PARTITIONS)
            if i != here
        ]

    return act


STRANGERS = tuple(f"x{i}" for i in range(50))
NAME_OF_KEYS = "}:line:head"


def begins(*models: str) -> Act:
    """Return what writes first commits of models that nobody registered."""

    def act(world: World) -> Sequence[Trace]:
        traces = []
        for name in models:
            value = record_of(model_id=name, commit=0, prev="")
            traces.append(
                world.forge(topics.COMMITS, name, value, partition=commit_partition(name))
            )
        return traces

    return act


def while_it_works(make: Make) -> Act:
    """Return what writes a record while workers run, after they have decided what was there."""

    def act(world: World) -> Sequence[Trace]:
        world.work()
        return puts(make)(world)

    return act


def a_gap_and_a_backup(world: World) -> Sequence[Trace]:
    kept = backup(world.platform)
    traces = while_it_works(continuing(3))(world)
    world.delete(LINE, "row-16")
    world.work()
    world.stop_workers()
    restore(world.platform, kept)
    return traces


# -- what ends a halt -----------------------------------------------------------------------------


def recover(world: World) -> None:
    """``lethe recover line``"""
    platform = world.platform
    parts = platform.store, platform.producer, platform.reader, platform.seals
    recovery = Recovery(*parts, signer=lambda: SIGNER, trusted=TRUSTED)
    recovery.run(recovery.plan(LINE))


def replaced(world: World, **options: Any) -> None:
    """Replace a model by the first file, and note what that brings about."""
    keys = ModelKeys(LINE)
    decided = world.platform.finals(LINE)
    world.register(LINE, replace_model=True, **options)
    del world.truth.live[LINE]["new-0"]  # it is not in the file
    if "before-insert" in decided:
        world.truth.live[LINE].pop("new-1", None)
    if not world.client.hexists(
        keys.ledger, "row-24"
    ):  # a registration leaves out who is on the list: the erasure finds nobody
        world.truth.erasures["before-erasure"] = 0


def unregister(*models: str) -> Callable[[World], None]:
    """Return ``lethe register --replace --accept-forgotten`` and ``unregister``, of each name."""

    def act(world: World) -> None:
        registrar, data = world.registrar(), data_of_kind("linear")
        for name in models:
            config = config_of(data, name, "pru", 10.0, LimitsRecord())
            rows = training_data(data, subjects=False)
            registrar.register(config, rows, replace_model=True, accept_forgotten=True)
            registrar.unregister(name)

    return act


def replace_model(world: World) -> None:
    """``lethe register line --replace --accept-forgotten``, with the first file."""
    replaced(world, accept_forgotten=True)


def replace_knowingly(world: World) -> None:
    """``lethe register line --replace``"""
    replaced(world)


RECOVER = "`lethe recover` ends the halt; nothing of the record is applied."
REPLACE = (
    "The model halts ({}), alone; nothing of the record is applied or published. `lethe register "
    "--replace --accept-forgotten` ends it."
)
HOLDS_ERASURES = (
    "The name halts (`KEY_UNKNOWN`), as a model would whose seal key is missing here. Erasures ask "
    "the other models and stay `PENDING`, naming it, until it is registered with `--replace "
    "--accept-forgotten`, and unregistered."
)

ATTACKS = (
    Attack(
        "no commit",
        "Writes bytes that are no commit.",
        "They count for nothing.",
        puts(lambda _world: b"\x00hello"),
    ),
    Attack(
        "a commit without value",
        "Writes a record without a value.",
        "It counts for nothing.",
        puts(lambda _world: None),
    ),
    Attack(
        "lengths that lie",
        "Writes a commit whose parts are longer than the record.",
        "Lengths are checked before anything is read; it counts for nothing.",
        puts(lambda _world: COMMIT.encode() + b"\n\xff\xff\xff\xff{}"),
    ),
    Attack(
        "six megabytes of zeros",
        "Writes the label of a commit and 6 MB of zeros.",
        "It counts for nothing.",
        puts(lambda _world: COMMIT.encode() + b"\n" + bytes(6 << 20)),
    ),
    Attack(
        "an open part that is too deep",
        "Nests the open part until a parser overflows.",
        "A limit of 4 KiB, and the parser's own.",
        puts(raw_part(b"[" * 4000)),
    ),
    Attack(
        "an open part that is too long",
        "Writes an open part of 5 KiB.",
        "Over 4 KiB it is no commit.",
        puts(raw_part(b'{"model_id":"' + b"x" * 5000 + b'"}')),
    ),
    Attack(
        "numbers that are no numbers",
        "Numbers a commit true, 1.0, -1 or with 400 digits, each of which some reader takes for "
        "the next number.",
        "A number is a whole number of few digits.",
        lambda world: [
            trace
            for number in (True, float(head_of(world)[0] + 1), -1, 10**400)
            for trace in puts(continuing(commit=number))(world)
        ],
    ),
    Attack(
        "a commit again",
        "Writes the model's first commit again, its registration.",
        "Its number is not above the newest: it is void.",
        puts(first),
    ),
    Attack(
        "the newest commit again",
        "Writes the newest commit once more, to apply it twice.",
        "Its number is not above the newest: it is void.",
        puts(newest),
    ),
    Attack(
        "all commits backwards",
        "Writes all commits of all models again, the newest first.",
        "They are void.",
        all_backwards,
    ),
    Attack(
        "a commit with a bit flipped",
        "Writes the newest commit again, with one bit of its sealed part flipped.",
        "Its number is not above the newest: it is void, and never opened.",
        puts(flipped),
    ),
    Attack(
        "a hundred losers",
        "Writes a hundred void commits, so that the worker keeps losing.",
        "Only a record that counts makes an append lose.",
        puts(newest, copies=100),
    ),
    Attack(
        "a copy in every other partition",
        "Copies a model's newest commit to the 15 partitions that are not the model's.",
        "A record counts only in its model's partition.",
        everywhere(newest),
    ),
    Attack(
        "the next commit in every other partition",
        "Writes a commit that continues the model's newest to the 15 other partitions.",
        "A record counts only in its model's partition.",
        everywhere(continuing()),
    ),
    Attack(
        "a gap in every other partition",
        "Writes a commit far ahead of the model's newest to the 15 other partitions.",
        "A record counts only in its model's partition.",
        everywhere(continuing(9)),
    ),
    Attack(
        "a model under another's key",
        "Writes one model's commit under the key of another.",
        "The open part names the model, not the key.",
        lambda world: [
            world.forge(topics.COMMITS, LOGIT, newest(world), partition=commit_partition(LINE))
        ],
    ),
    Attack(
        "fifty models of nobody",
        "Writes first commits of 50 models that were never registered, to fill the store and to "
        "have readers list them.",
        f"{HOLDS_ERASURES} No model halts, and no request to one waits.",
        begins(*STRANGERS),
        remedy=unregister(*STRANGERS),
        not_stopped=True,
    ),
    Attack(
        "a name made of keys",
        "Writes a first commit of a model named like a key of the store.",
        "Names are percent-encoded in keys: no key of another model is touched. " + HOLDS_ERASURES,
        begins(NAME_OF_KEYS),
        remedy=unregister(NAME_OF_KEYS),
        not_stopped=True,
    ),
    Attack(
        "a gap",
        "Writes a commit whose number is three ahead, so that some seem lost.",
        "The model halts (`LOG_GAP`), alone. " + RECOVER,
        puts(continuing(3)),
        remedy=recover,
        not_stopped=True,
    ),
    Attack(
        "another predecessor",
        "Writes the next commit, naming another predecessor.",
        "The model halts (`LOG_GAP`), alone. " + RECOVER,
        puts(continuing(prev="a" * 64)),
        remedy=recover,
        not_stopped=True,
    ),
    Attack(
        "a gap while it works",
        "Writes a commit three ahead behind the worker's back.",
        "The model halts (`LOG_GAP`), alone; what the worker was appending does not count. "
        + RECOVER,
        while_it_works(continuing(3)),
        remedy=recover,
        not_stopped=True,
    ),
    Attack(
        "a gap, and a store that goes back",
        "Writes a commit three ahead behind the worker's back; later the store is restored to "
        "before.",
        "The model halts (`LOG_GAP`), alone, once the store has what lies before the gap. "
        + RECOVER,
        a_gap_and_a_backup,
        remedy=recover,
        not_stopped=True,
    ),
    Attack(
        "a commit under an unknown key",
        "Writes the next commit, sealed with a key of nobody's.",
        REPLACE.format("`KEY_UNKNOWN`"),
        puts(continuing()),
        remedy=replace_model,
        not_stopped=True,
    ),
    Attack(
        "a commit under our key's name",
        "Writes the next commit with random bytes, and names the seal key of the workers.",
        REPLACE.format("`KEY_UNKNOWN`"),
        lambda world: puts(continuing(key=world.platform.seals.current))(world),
        remedy=replace_model,
        not_stopped=True,
    ),
    Attack(
        "another seal key under our key's name",
        "Seals a commit with another key, and names the workers' key.",
        REPLACE.format("`UNTRUSTED`, as its signature is nobody's"),
        puts(sealed_again(SealKeys([OTHER_SECRET]), name="ours")),
        remedy=replace_model,
        not_stopped=True,
    ),
    Attack(
        "a sealed part on another open part",
        "Puts the sealed part of a true commit, with its signature, behind an open part that "
        "says that it is the next.",
        REPLACE.format("`UNTRUSTED`: both are bound to their open part"),
        puts(spliced),
        remedy=replace_model,
        not_stopped=True,
    ),
    Attack(
        "a commit by the seal key alone",
        "Knows the seal key, and writes the registration's opening as the next commit, unsigned.",
        REPLACE.format("`UNTRUSTED`"),
        puts(sealed_again(signer=None)),
        remedy=replace_model,
        not_stopped=True,
    ),
    Attack(
        "a commit that a stranger signed",
        "Knows the seal key, and signs the next commit with a key of their own.",
        REPLACE.format("`UNTRUSTED`"),
        puts(sealed_again()),
        remedy=replace_model,
        not_stopped=True,
    ),
    Attack(
        "a checkpoint of a stranger",
        "Writes a commit that may skip numbers, as `lethe recover` does.",
        REPLACE.format("`KEY_UNKNOWN`"),
        puts(continuing(7, checkpoint=True)),
        remedy=replace_model,
        not_stopped=True,
    ),
    Attack(
        "a commit of a later format",
        "Writes the next commit in a format to come.",
        REPLACE.format("`FORMAT_TOO_NEW`"),
        puts(continuing(format=FORMAT + 1)),
        remedy=replace_model,
        not_stopped=True,
    ),
)
