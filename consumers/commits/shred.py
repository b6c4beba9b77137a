"""What a commit leaves behind outside the store: keys of row records, and files of rows.

Files of rows (`engine.rowstore`) that a commit leaves behind are removed once it is applied. The
rest of this is about keys, where row records are encrypted (LETHE_ROW_KEYS_URL).

The keys of a generation that a refresh has staged are kept once its commit has won, and before it
is applied: whoever applies it, the worker or a fold, does that.

The keys are in another server, out of reach of the store's scripts: those of deleted rows are
dropped once the commit is applied (it may be published before), and again by every fold that reads
it, because whoever applied it may have died before. A deleted row never comes back, so dropping its
key again does no harm. The other keys of a generation that ends, by a refresh, ``--replace`` or
unregistration, are not dropped: they expire (`RowKeys.retire_generation`). So do those of a
generation that a commit names and that did not become live, because the store lost its rows.

A commit that leaves no row (the last ones are deleted, or the model is unregistered) does not name
the generation that it ends, and once the commit is applied a fold could no longer find that out. So
its keys are dropped before it is applied.
"""

from __future__ import annotations

from collections.abc import Iterable

from lethe.consumers.commits.commit import Commit
from lethe.consumers.service.telemetry.steps import AtStep, Step
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.row_files import FORMER, former_files, remove_former
from lethe.engine.store.store import ModelStore


def keep(store: ModelStore, commits: Iterable[Commit]) -> None:
    """Keep the keys of the generations that commits make live; call it before these are applied."""
    for commit in commits:
        if store.row_keys is not None and commit.staged is not None:
            keys = ModelKeys(commit.model_id)
            store.row_keys.keep(keys.generation(commit.staged.generation))


def shred(store: ModelStore, commit: Commit, former: str, live: str, at_step: AtStep) -> None:
    """Drop the keys of deleted rows, let those of discarded generations expire, remove files.

    ``former`` and ``live`` name the generations that were live before the commit and are live now.

    Raises
    ------
    StoreUnavailable, NotDurable
        The keys may still be on their server's disk: fold.
    """
    for name in left_files(commit):
        remove_former(commit.meta, name, store.row_keys)
    staged = commit.staged
    rows = dict.fromkeys((*commit.deleted, *(() if staged is None else staged.caught_up)))
    named = () if staged is None else (staged.generation, *_generations(staged.former))
    discarded = {former, *named} - {"", live}
    if store.row_keys is None or not (rows or discarded):
        return
    at_step(Step.SHRED)
    keys = ModelKeys(commit.model_id)
    for name in {former, live} - {""}:
        if rows:
            store.row_keys.drop(keys.generation(name), list(rows))
    for name in discarded:
        store.row_keys.retire_generation(keys.generation(name))


def shreds(store: ModelStore, commit: Commit) -> bool:
    """Return whether `shred` may have something to do."""
    return store.row_keys is not None or bool(left_files(commit))


def left_files(commit: Commit) -> tuple[str, ...]:
    """Return the names of the files of rows that a commit leaves behind."""
    if commit.leaves_no_row:
        return former_files(commit.meta)
    former = () if commit.staged is None else commit.staged.former
    return tuple(name for name in former if name.startswith(FORMER))


def _generations(former: tuple[str, ...]) -> list[str]:
    return [name.removeprefix("gen:") for name in former if name.startswith("gen:")]
