"""The lists of models in the store: one that was removed or evicted is made again from versions.

A model that is on no list is passed over by erasures, and the commits that it gets are not seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from lethe.consumers.contract.published_versions import versioned_models
from lethe.consumers.log.base import Reader
from lethe.engine.store.layout.keys import PartitionKeys, commit_partition
from lethe.engine.store.membership import listed_models
from lethe.engine.store.store import ModelStore


def restore_lists(
    store: ModelStore, reader: Reader, partitions: Sequence[PartitionKeys] = ()
) -> list[PartitionKeys]:
    """Restore the lists of some partitions, or of all; return those that still lack models.

    Versions are kept for ever, so that their topic names every model. Cost: a round trip, and one
    pass over that topic if a list lacks some.
    """
    lacking = listed_models(store.client, partitions)[1]
    if not lacking:
        return []
    versioned = versioned_models(reader)
    for keys in lacking:
        models = [name for name in versioned if commit_partition(name) == keys.index]
        store.cursors.list_models(keys, models)
    return listed_models(store.client, lacking)[1]
