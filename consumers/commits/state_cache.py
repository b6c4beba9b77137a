"""States of models in memory, up to a number of bytes: the least recently used goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping

from lethe.engine.store.layout.keys import commit_partition
from lethe.engine.store.layout.state import Head, ModelState

LIMIT_BYTES = 1 << 30
"""Bytes of V, Q and sentinels to keep: some 200 models of 1,000 features with 300 rows deleted.

A state that was dropped is loaded again when its model is next named, which costs a read.
"""


class StateCache:
    """A mapping from model ids to states that forgets the least recently used ones.

    Parameters
    ----------
    limit
        Bytes that are kept at most; the newest state is kept whatever its size.
    """

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._limit = limit
        self._states: OrderedDict[str, tuple[ModelState, int]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[ModelState]:
        return (state for state, _ in self._states.values())

    def get(self, model_id: str) -> ModelState | None:
        """Return a model's state, or None if it is not in memory."""
        entry = self._states.get(model_id)
        if entry is None:
            return None
        self._states.move_to_end(model_id)
        return entry[0]

    def put(self, state: ModelState) -> None:
        """Keep a state in place of the model's former one."""
        self.drop(state.model_id)
        size = size_of(state)
        self._states[state.model_id] = (state, size)
        self._bytes += size
        self._make_room()

    def _make_room(self) -> None:
        while self._bytes > self._limit and len(self._states) > 1:
            _, (_, freed) = self._states.popitem(last=False)
            self._bytes -= freed

    def drop(self, model_id: str) -> None:
        """Forget a model's state."""
        _, size = self._states.pop(model_id, (None, 0))
        self._bytes -= size

    def renew(self, index: int, folded: StateCache, heads: Mapping[str, Head]) -> None:
        """Replace the states of a commits partition by those that a fold has brought up to date.

        ``heads`` are the newest commits of the models that it met.
        """
        for model_id in [name for name in self._states if commit_partition(name) == index]:
            self.drop(model_id)
        for model_id, head in heads.items():
            state = folded.get(model_id)
            if state is not None and state.head == head:
                self.put(state)

    def clear(self) -> None:
        """Forget all."""
        self._states.clear()
        self._bytes = 0


def size_of(state: ModelState) -> int:
    """Return roughly how many bytes a state takes: its arrays, and its deferred row ids."""
    stream, sentinels = state.stream, state.sentinels
    arrays = (
        state.generation.theta_b, state.generation.objective.penalty,
        stream.theta_exact, stream.theta_r, stream.anchor, stream.published,
        stream.V.array, stream.Q.array,
        sentinels.rows.X, sentinels.rows.y, sentinels.W,
    )  # fmt: skip
    waiting = sum(len(request.row_ids) for request in state.deferred.values())
    sums = 0 if state.pipeline is None else state.pipeline.answer.sums.nbytes
    sums += 0 if stream.solution is None else stream.solution.nbytes
    sums += 0 if state.generation.factor is None else state.generation.factor.L.nbytes
    return sum(array.nbytes for array in arrays) + sums + 100 * waiting + 4096
