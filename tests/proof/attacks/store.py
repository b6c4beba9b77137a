"""Attacks by somebody who may write to the store, or who loses or restores what it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lethe.engine.store.layout.keys import ModelKeys, commit_partition
from tests.proof.attacks.attack import Act, Attack, Trace
from tests.proof.attacks.commits import replace_knowingly
from tests.proof.attacks.world import LINE, LOGIT, Owed, World
from tests.support.stores import backup, restore, wipe

KEYS, OTHERS = ModelKeys(LINE), ModelKeys(LOGIT)
SLOT = f"lethe:{{c{commit_partition(LINE):02d}}}"


def command(*words: Any, answer: Any = 1, decided: bool = False) -> Act:
    """Return what sends one command to the store; ``decided``: once all requests are."""

    def act(world: World) -> Sequence[Trace]:
        if decided:
            world.work()
            world.stop_workers()
        given = [word(world) if callable(word) else word for word in words]
        found = world.client.execute_command(*given)
        return [Trace(f"the answer to {given[0]}", lambda: found, answer)]

    return act


def generation(name: str) -> Callable[[World], str]:
    """Return the key of a part of the live generation."""
    return lambda world: str(getattr(world.platform.load(LINE).generation_keys, name))


def row_shard(row: str) -> Callable[[World], str]:
    """Return the key that holds a row's record."""

    def key(world: World) -> str:
        keys = world.platform.load(LINE).generation_keys
        return next(one for one in keys.every_rows() if world.client.hexists(one, row))

    return key


def data_set(name: str) -> Callable[[World], str]:
    """Return the key of a part of the model's data set."""

    def key(world: World) -> str:
        state = world.platform.load(LINE)
        return str(getattr(state.keys.dataset(state.meta.dataset_key), name))

    return key


def goes_back(model: str | None, *, wiped: bool = False, worker: bool = False) -> Act:
    """Return what restores an older store, or one slot of it, after all was decided.

    ``worker``: the workers run on while it happens.
    """

    def act(world: World) -> Sequence[Trace]:
        before = backup(world.platform, model)
        world.work()
        if not worker:
            world.stop_workers()
        head = world.platform.load(LINE).head.commit
        if wiped:
            wipe(world.platform, model)
            return [Trace("it is gone", lambda: head > 0)]
        restore(world.platform, before, model)
        found = world.platform.load(LINE).head.commit
        return [Trace("it went back", lambda: found < head)]

    return act


def back_and_forth(world: World) -> Sequence[Trace]:
    """Restore an older store, let workers begin, and restore the newer one again, twice."""
    older = backup(world.platform)
    world.work()
    newer = backup(world.platform)
    for kept in (older, newer, older):
        restore(world.platform, kept)
        world.work()
    return [Trace("three times", lambda: len(older) > 0)]


def other_head(world: World) -> Sequence[Trace]:
    dumped = world.client.dump(OTHERS.head)
    world.client.restore(KEYS.head, 0, dumped, replace=True)
    found = world.client.hget(KEYS.head, "digest"), world.client.hget(OTHERS.head, "digest")
    return [Trace("heads are the same", lambda: found[0] == found[1])]


def loses_a_row(world: World) -> Sequence[Trace]:
    del world.truth.live[LINE]["new-1"]
    world.truth.owed[LINE, "before-insert"] = Owed("REJECTED", 0, "DATA_LOST")
    return command("HDEL", row_shard("row-40"), "row-40")(world)


def off_the_list(world: World) -> Sequence[Trace]:
    world.work()
    found = world.client.srem(f"{SLOT}:models", LINE)
    world.erase("subject-9", "a-1", {LINE: ["row-27", "row-28", "row-29"]})
    return [Trace("it was on the list", lambda: found, 1)]


def junk(world: World) -> Sequence[Trace]:
    """Add keys with names like the product's."""
    names = [f"{SLOT}:x{i}:head" for i in range(100)] + [f"lethe:watermark:{i}" for i in range(100)]
    world.client.mset(dict.fromkeys(names, "\x00"))
    return [Trace("keys", lambda: world.client.exists(*names), 200)]


def watermarks_gone(world: World) -> Sequence[Trace]:
    world.work()
    world.stop_workers()
    names = list(world.client.scan_iter("lethe:watermark:*"))
    world.client.delete(*names)
    return [Trace("watermarks", lambda: len(names) > 0)]


def stolen_row(world: World) -> Sequence[Trace]:
    """Put another row's record under a row's name."""
    shard, other = row_shard("row-40")(world), row_shard("row-41")(world)
    record = world.client.hget(other, "row-41")
    world.client.hset(shard, "row-40", record)
    return [Trace("the record", lambda: record is not None)]


def restore_backup(world: World) -> None:
    """Restore a backup of the store, of before the attack."""
    restore(world.platform, world.kept_store)


BACKUP = "{} A backup of the store, however old, ends it: a fold follows the log from there."
REPLACE = "{} `lethe register --replace` ends it, and leaves out what was deleted."
FOLD = "The head counts what each key holds: a fold restores it from the log."

ATTACKS = (
    Attack(
        "the ledger gone",
        "Deletes the ledger of deleted rows, to bring them back.",
        FOLD,
        command("DEL", KEYS.ledger),
    ),
    Attack(
        "the ledger gone while it works",
        "Deletes the ledger behind the workers' back.",
        FOLD,
        command("DEL", KEYS.ledger, decided=True),
    ),
    Attack(
        "a row out of the ledger",
        "Removes one row from the ledger, to insert it again.",
        FOLD,
        command("HDEL", KEYS.ledger, "row-0"),
    ),
    Attack(
        "the requests gone",
        "Deletes the index of requests, to use their ids again.",
        FOLD,
        command("DEL", KEYS.requests),
    ),
    Attack(
        "a request out of the index",
        "Removes one request from the index, to use its id again.",
        FOLD,
        command("HDEL", KEYS.requests, "old-line"),
    ),
    Attack(
        "the order of deletions gone",
        "Deletes the list of deleted rows.",
        "A fold restores what it needs of it.",
        command("DEL", OTHERS.offsets),
    ),
    Attack(
        "the offsets gone",
        "Deletes from where on requests are undecided, so that they are decided twice.",
        "The index of requests: they get their receipts again.",
        command("DEL", KEYS.offsets, decided=True),
    ),
    Attack(
        "the ledger of another kind",
        "Puts a text where the ledger was.",
        "The model halts until the key is deleted; a fold then restores it.",
        command("SET", KEYS.ledger, "x", answer=True),
        remedy=lambda world: world.client.delete(KEYS.ledger),
    ),
    Attack(
        "the head gone",
        "Deletes a model's head.",
        BACKUP.format("The model halts (`STORE_TOO_OLD`)."),
        command("DEL", KEYS.head),
        remedy=restore_backup,
        not_stopped=True,
    ),
    Attack(
        "another model's head",
        "Puts another model's head in its place.",
        BACKUP.format("Its commit is not in the model's log: `LOG_RESET`."),
        other_head,
        remedy=restore_backup,
        not_stopped=True,
    ),
    Attack(
        "a head that expires",
        "Lets a head expire in a millisecond.",
        BACKUP.format("The model halts (`STORE_TOO_OLD`)."),
        command("PEXPIRE", KEYS.head, 1),
        remedy=restore_backup,
        not_stopped=True,
    ),
    Attack(
        "parameters cut short",
        "Cuts the stored parameters short.",
        REPLACE.format("Lengths are checked: `CORRUPT_STATE`."),
        command("HSET", KEYS.head, "theta_exact", b"\x00" * 7, answer=0),
        remedy=replace_knowingly,
        not_stopped=True,
    ),
    Attack(
        "parameters that are not finite",
        "Puts NaN into the stored parameters.",
        REPLACE.format("They are checked: `CORRUPT_STATE`."),
        command("HSET", KEYS.head, "theta_exact", b"\xff" * 40, answer=0),
        remedy=replace_knowingly,
        not_stopped=True,
    ),
    Attack(
        "a head's count of nothing",
        "Puts a text into the head's number of the newest commit.",
        BACKUP.format("It is checked: `CORRUPT_STATE`."),
        command("HSET", KEYS.head, "commit", "x", answer=0),
        remedy=restore_backup,
        not_stopped=True,
    ),
    Attack(
        "a row's record gone",
        "Deletes the record of a live row.",
        REPLACE.format("`DATA_LOST`: deletions are deferred, and changes of rows rejected."),
        loses_a_row,
        remedy=replace_knowingly,
        not_stopped=True,
    ),
    Attack(
        "an array cut short",
        "Shortens V by a row.",
        REPLACE.format("Lengths are checked: `CORRUPT_STATE`."),
        command("LTRIM", generation("V"), 0, -2, answer=True),
        remedy=replace_knowingly,
        not_stopped=True,
    ),
    Attack(
        "a subject gone",
        "Removes a person from the index of subjects, so that their erasure finds nobody.",
        BACKUP.format(
            "The head counts subjects: `KEYS_LOST`, and no erasure is complete meanwhile."
        ),
        command("HDEL", data_set("subjects"), "subject-8"),
        remedy=restore_backup,
        not_stopped=True,
    ),
    Attack(
        "the subjects gone",
        "Deletes the index of subjects.",
        BACKUP.format("`KEYS_LOST`, and no erasure is complete meanwhile."),
        command("DEL", data_set("subjects")),
        remedy=restore_backup,
        not_stopped=True,
    ),
    Attack(
        "a model off the list",
        "Removes a model from its partition's list of models, so that erasures pass it over.",
        "The store knows how many there were: the list is made again from the topic of versions.",
        command("SREM", f"{SLOT}:models", LINE),
    ),
    Attack(
        "a model off the list while it works",
        "Removes a model from the list behind the workers' back, and has a person erased.",
        "The store knows how many there were: the list is made again from the topic of versions.",
        off_the_list,
    ),
    Attack(
        "the list of models gone",
        "Deletes the list of models of a partition.",
        "The store knows how many there were: the list is made again from the topic of versions.",
        command("DEL", f"{SLOT}:models"),
    ),
    Attack(
        "the list of erased people gone",
        "Deletes the store's view of who is erased.",
        "The store knows how many there were, and reads the topic again.",
        command("DEL", "lethe:{erased}:subjects"),
    ),
    Attack(
        "a person out of the erased",
        "Removes one erased person from the store's view.",
        "The store knows how many there were, and reads the topic again.",
        lambda world: command(
            "HDEL", "lethe:{erased}:subjects", world.client.hkeys("lethe:{erased}:subjects")[0]
        )(world),
    ),
    Attack(
        "all of the erased gone",
        "Deletes all that the store has of erasures.",
        "It is read from the topic again before it is used.",
        command(
            "DEL",
            "lethe:{erased}:subjects",
            "lethe:{erased}:cursors",
            "lethe:{erased}:checked",
            "lethe:{erased}:secrets",
            answer=4,
        ),
    ),
    Attack(
        "the watermarks gone",
        "Deletes the watermarks, so that all is read again.",
        "Each model knows what it has decided.",
        watermarks_gone,
    ),
    Attack(
        "the cursors gone",
        "Deletes how far a commits partition is applied.",
        "A fold reads it from its beginning; repeats are byte for byte the same.",
        command("DEL", f"{SLOT}:cursors", decided=True),
    ),
    Attack(
        "the cursors back",
        "Puts the cursors of a commits partition back to zero.",
        "A fold applies again what can be repeated.",
        command("HSET", f"{SLOT}:cursors", "apply", 0, "published", 0, answer=0, decided=True),
    ),
    Attack(
        "a lease for ever",
        "Takes the lease of a fold for a name of nobody's.",
        "A worker waits for a long fold of another's only as long as that goes on.",
        command("SET", f"{SLOT}:fold-lease", "nobody", answer=True),
    ),
    Attack(
        "what is known of topics gone",
        "Deletes what the store knows of topics.",
        "The topics that are there are taken; commits are checked against the store's own.",
        command("DEL", "lethe:topics"),
    ),
    Attack(
        "keys of the product's names",
        "Adds 200 keys with names like the product's.",
        "A model counts only if it is on its partition's list.",
        junk,
    ),
    Attack(
        "a store that went back",
        "Restores the store to before the last requests.",
        "A fold: nothing contradicts what was published.",
        goes_back(None),
    ),
    Attack(
        "a store that went back while workers run",
        "Restores the store to before the last requests while workers run.",
        "Each commit compares the head with what it continues.",
        goes_back(None, worker=True),
    ),
    Attack(
        "a slot that went back",
        "Restores the keys of one model's slot alone.",
        "A fold.",
        goes_back(LINE),
    ),
    Attack(
        "a store that goes back and forth",
        "Restores an older, a newer and an older store.",
        "A fold each time.",
        back_and_forth,
    ),
    Attack(
        "a slot wiped",
        "Wipes the keys of one model's slot.",
        REPLACE.format("`DATA_LOST`."),
        goes_back(LINE, wiped=True),
        remedy=replace_knowingly,
        not_stopped=True,
    ),
)
