"""A library model followed along its stream: what it publishes, says and costs.

The policy is the product's: after each batch, a refresh is ordered when the published error
passes the budget or the generation is used up (as in `consumers/versions/refresh_schedule.py`), and
`engine.refresh.policy.choose` decides its size.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np

from lethe.engine import Limits, LinearModel, LogisticModel, PublishedError, RefreshSize
from lethe.engine.fit.objective import Array
from lethe.engine.refresh.policy import facts_of, used_up
from stream.data import Record, StreamData
from stream.retraining import Wide, relative_error

BUDGET = 0.01  # the command's default
LIMITS = Limits()  # the product's

Model = LinearModel | LogisticModel


def fitted(data: StreamData) -> Model:
    """Return a model fitted on all rows, with the product's limits and budget."""
    made = LinearModel if data.kind == "linear" else LogisticModel
    model: Model = made(ridge=data.ridge, fit_intercept=False, error_budget=BUDGET, limits=LIMITS)
    if isinstance(model, LinearModel):
        model.rounded_features = 0  # the stream, as the service has it
    return model.fit(data.X, data.y)


@dataclass(frozen=True, slots=True)
class Refresh:
    """One refresh: after how many deletions, why it was ordered, what it was, how long it took.

    ``cause`` is ``budget`` (the error), ``cost`` (rows of V) or ``generation`` (any other limit).
    """

    deleted: int
    cause: str
    size: str
    reason: str
    seconds: float


@dataclass(slots=True)
class Followed:
    """One stream through one model.

    Attributes
    ----------
    batch_seconds
        Wall clock of each ``delete``: the step, the published error, the bookkeeping.
    refreshes
        In order; empty without the policy.
    """

    data: StreamData
    model: Model
    method: str
    policy: bool
    deleted: int = 0
    batch_seconds: list[float] = field(default_factory=list)
    refreshes: list[Refresh] = field(default_factory=list)
    _marked: int = 0

    @classmethod
    def begin(
        cls,
        data: StreamData,
        model: Model,
        method: str,
        *,
        policy: bool,
        limits: Limits = LIMITS,
    ) -> Followed:
        """Follow a copy of a fitted model, under the product's limits or others."""
        followed = cls(data, deepcopy(model), method, policy)
        followed.model.limits = limits
        return followed

    def delete(self, k: int) -> PublishedError:
        """Delete the next k rows of the stream; return the error then published."""
        batch = [str(i) for i in self.data.order[self.deleted : self.deleted + k]]
        begin = time.perf_counter()
        error = self.model.delete(batch, method=self.method).error
        self.batch_seconds.append(time.perf_counter() - begin)
        self.deleted += len(batch)
        cause = self._cause(error) if self.policy else None
        return error if cause is None else self._refresh(cause)

    def _cause(self, error: PublishedError) -> str | None:
        """Return why the product would order a refresh now, or None.

        The library leaves that question to its caller; the workers ask it of the same state.
        """
        if error.over(BUDGET):
            return "budget"
        state = self.model._fitted
        facts = facts_of(
            state.generation,
            state.stream,
            rows_live=len(state.members),
            estimate=0.0,
            budget_relative=BUDGET,
        )
        return None if used_up(facts, self.model.limits or Limits()) is None else "generation"

    def _refresh(self, cause: str) -> PublishedError:
        begin = time.perf_counter()
        choice = self.model.refresh()
        seconds = time.perf_counter() - begin
        if cause == "generation" and "rows deleted" in choice.reason:
            # A compact, or a rebuild where that costs less; any other rebuild is for the error.
            cheaper = choice.size is RefreshSize.COMPACT or "costs less" in choice.reason
            cause = "cost" if cheaper else "budget"
        reason = re.sub(r"^\d+ ", "", choice.reason)
        self.refreshes.append(Refresh(self.deleted, cause, str(choice.size), reason, seconds))
        return self.model.error

    @property
    def theta(self) -> Array:
        """What is published, (d,)."""
        theta: Array = self.model.theta
        return theta

    def at_marks(self, truths: Mapping[int, Wide], k: int) -> Iterator[Record]:
        """Delete the stream in batches of k; yield the errors wherever the truth is known."""
        for _ in range(len(self.data.order) // k):
            error = self.delete(k)
            if self.deleted not in truths:
                continue
            truth = truths[self.deleted]
            true = relative_error(self.theta, truth)
            said = _said(error, float(np.linalg.norm(truth.astype(np.float64))))
            bound = said["bound"]
            yield {
                "deleted": self.deleted,
                "true": true,
                **said,
                "below": bound is not None and bound < true,  # before both are rounded
            }
            self._marked = len(self.batch_seconds)

    @property
    def batch_us(self) -> float:
        """Median microseconds of a batch since the mark before."""
        return median_us(self.batch_seconds[self._marked :])

    @property
    def refresh_seconds(self) -> float:
        """Seconds of all refreshes so far."""
        return sum((refresh.seconds for refresh in self.refreshes), 0.0)

    def counts(self) -> dict[str, int]:
        """Return how many refreshes of each size there were so far."""
        return dict(Counter(refresh.size for refresh in self.refreshes))

    def reasons(self) -> str:
        """Return how many refreshes there were so far for each reason."""
        counted = Counter(f"{refresh.size}: {refresh.reason}" for refresh in self.refreshes)
        return "; ".join(f"{count} {reason}" for reason, count in counted.items())


def median_us(seconds: Sequence[float]) -> float:
    """Return the median in microseconds."""
    return float(np.median(seconds)) * 1e6


def _said(error: PublishedError, scale: float) -> Record:
    """Return a published error relative to ``scale``, as a record has it."""
    return {
        "published": None if error.value is None else error.value / scale,
        "bound": None if error.bound is None else error.bound / scale,
        "known": str(error.kind),
    }
