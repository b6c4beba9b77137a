"""SISA: sharded training (Bourtoule et al. 2021): a deletion retrains the shards that it touches.

Each shard has a model of its own, and the models' margins are averaged. The models are convex and
refitted in full, so that slices within a shard would save nothing and are
left out. A deletion is exact: it equals sharded training without the rows. The state is S d numbers
and the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evaluation.data import Array, Index, Table
from evaluation.deletions import retrained

SHARDS = 5


@dataclass(frozen=True, slots=True)
class Sharded:
    """The shards' rows, and their thetas, S x d."""

    table: Table
    shards: tuple[Index, ...]
    thetas: Array

    @classmethod
    def train(cls, table: Table, rows: Index, seed: int) -> Sharded:
        """Split the rows at random, and fit every shard with its share of the ridge."""
        shards = tuple(np.array_split(np.random.default_rng([seed, 6]).permutation(rows), SHARDS))
        return cls(table, shards, np.array([_fitted(table, shard) for shard in shards]))

    def delete(self, rows: Index) -> Sharded:
        """Return the models without the rows; only shards that had some are fitted."""
        shards = tuple(shard[~np.isin(shard, rows)] for shard in self.shards)
        thetas = self.thetas.copy()
        for i, (before, after) in enumerate(zip(self.shards, shards, strict=True)):
            if len(after) < len(before):
                thetas[i] = _fitted(self.table, after)
        return Sharded(self.table, shards, thetas)

    def retrained(self, rows: Index) -> Sharded:
        """Return sharded training without the rows, from the start: what `delete` must equal."""
        shards = tuple(shard[~np.isin(shard, rows)] for shard in self.shards)
        thetas = np.array([_fitted(self.table, shard) for shard in shards])
        return Sharded(self.table, shards, thetas)

    @property
    def theta(self) -> Array:
        """The mean of the models, shape (d,): of linear margins, it is the aggregate."""
        mean: Array = self.thetas.mean(axis=0)
        return mean

    @property
    def bytes(self) -> int:
        """Bytes of the state that deletions need, without the table."""
        return self.thetas.nbytes + sum(shard.nbytes for shard in self.shards)


def _fitted(table: Table, rows: Index) -> Array:
    """Fit one shard; its ridge is the whole one's share, so that it penalises as strongly a row."""
    share = Table(table.kind, table.X, table.y, table.ridge / SHARDS)
    return retrained(share, rows)
