"""The factored Hessians of live generations, kept in memory, and the dual rows that they make."""

from __future__ import annotations

from collections import OrderedDict

import redis

from lethe.engine.deletion.generation import Generation
from lethe.engine.deletion.insertion import base_dual_rows
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.live import LivePipeline
from lethe.engine.store.generation import read_factor
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.preprocessing import given_table
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.row_files import Duals

LIMIT_BYTES = 256 << 20
"""Bytes of factors that are kept at most; the newest is whatever its size."""


class Factors:
    """Reads factors, and keeps those that were used last; one thread uses it."""

    def __init__(self, client: redis.Redis, limit: int = LIMIT_BYTES) -> None:
        self._client = client
        self._limit = limit
        self._kept: OrderedDict[str, Factor] = OrderedDict()

    def of(self, state: ModelState) -> Factor:
        """Return the factor of the live generation, stacked.

        Cost O(h d^2) bytes, unless it was read of late.

        Raises
        ------
        CorruptState
            It is missing, or has another size.
        """
        name = f"{state.model_id}/{state.rows_generation}"
        if name not in self._kept:
            self._kept[name] = read_factor(self._client, state.generation_keys, state.generation)
        self._kept.move_to_end(name)
        while (
            len(self._kept) > 1 and sum(one.L.nbytes for one in self._kept.values()) > self._limit
        ):
            self._kept.popitem(last=False)
        return self._kept[name]

    def dual_rows_of(self, state: ModelState) -> Duals:
        """Return what makes base dual rows of the live generation; errors as of `of`."""
        config, factor = state.meta.config, self.of(state)
        return duals_of(config, state.generation, factor, state.pipeline)


def duals_of(
    config: ModelConfig, generation: Generation, factor: Factor, pipeline: LivePipeline | None
) -> Duals:
    """Return what makes base dual rows of a generation from rows as records keep them."""
    what = f"model {config.model_id!r}, rows of files"

    def duals(stored: Array) -> Array:
        X = stored
        if pipeline is not None:
            X = pipeline.features(given_table(config.preprocess, stored, what))
        return base_dual_rows(generation, factor, X)[0]

    return duals
