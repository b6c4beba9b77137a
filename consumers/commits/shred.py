"""Keys of row records that a commit ends, where these are encrypted (LETHE_ROW_KEYS_URL).

The keys lie in another server, so no script of the store can take them along: they are dropped when
the commit is applied, and once more by every fold that reads it, because whoever applied it may
have died before. A deleted row never comes back, so dropping its key again does no harm.
"""

from __future__ import annotations

from lethe.consumers.commits.commit import Commit
from lethe.consumers.service.steps import AtStep, Step
from lethe.engine.store.keys import ModelKeys
from lethe.engine.store.store import ModelStore


def shred(store: ModelStore, commit: Commit, former: str, live: str, at_step: AtStep) -> None:
    """Drop the keys of deleted rows, and let those of generations that have gone expire.

    ``former`` and ``live`` name the generations that were live before the commit and are now.

    Raises
    ------
    StoreUnavailable, NotDurable
        The keys may not be off the disk of their server: fold.
    """
    staged = commit.staged
    rows = dict.fromkeys((*commit.deleted, *(() if staged is None else staged.caught_up)))
    gone = {former, *_generations(() if staged is None else staged.former)} - {"", live}
    if store.row_keys is None or not (rows or gone):
        return
    at_step(Step.SHRED)
    keys = ModelKeys(commit.model_id)
    for name in {former, live} - {""}:
        if rows:
            store.row_keys.drop(keys.generation(name), list(rows))
    for name in gone:
        store.row_keys.retire_generation(keys.generation(name))


def _generations(former: tuple[str, ...]) -> list[str]:
    return [name.removeprefix("gen:") for name in former if name.startswith("gen:")]
