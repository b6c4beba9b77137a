"""Every error that Lethe raises on purpose.

One root, one class for each thing that a person can act on. The message is written for the
operator: what happened, to which model and request, and what to do. ``code`` is what receipts, dead
letters and ``--json`` carry.
"""

from __future__ import annotations

from typing import ClassVar


class LetheError(Exception):
    """Root of all errors; ``str(error)`` is one line that says what to do."""

    code: ClassVar[str] = "ERROR"
    exit_code: ClassVar[int] = 2


class InvalidData(LetheError, ValueError):
    """The rows, targets or settings cannot be used; nothing was changed.

    It is a ValueError, too, as scikit-learn's tools expect.
    """

    code = "INVALID_DATA"


class InvalidRequest(LetheError):
    """A deletion request that does not follow the contract."""

    code = "INVALID_REQUEST"


class UnknownModel(LetheError):
    """No model of this name is registered."""

    code = "UNKNOWN_MODEL"


class UnknownRows(LetheError):
    """None of the named rows was ever a member of the model."""

    code = "UNKNOWN_ROWS"


class ModelExists(LetheError):
    """A model of this name is registered already; ``--replace`` publishes its next version."""

    code = "MODEL_EXISTS"


class IllConditioned(LetheError):
    """A step would lose too many digits: the rows' leverage is too near to 1.

    An update cannot delete these rows; rebuild without them.
    """

    code = "ILL_CONDITIONED"


class StatisticsMoved(IllConditioned):
    """The live statistics are too far from the base; a rebuild makes them the base."""

    code = "STATISTICS_MOVED"


UNSTATED = (
    "the error of the answer would not be a finite number; rescale the features or the targets, or "
    "raise the ridge strength"
)
"""Message of `IllConditioned` if an error is not finite: a step whose error cannot be stated is
refused, even if theta itself is finite."""


class NotConverged(LetheError):
    """A fit or a polish did not reach its tolerance within its limit of passes."""

    code = "NOT_CONVERGED"


class Uncertified(LetheError):
    """The noise of a certified model no longer hides what its deletions left; rebuild the model."""

    code = "UNCERTIFIED"


class CorruptState(LetheError):
    """Stored bytes do not have the length, digest or format that the state names."""

    code = "CORRUPT_STATE"


class RowsMissing(CorruptState):
    """A file of rows is not there: lost, or removed once another root took the place of its own."""

    code = "ROWS_MISSING"


class FormatTooNew(CorruptState):
    """The state was written by a newer Lethe; upgrade this worker before it runs."""

    code = "FORMAT_TOO_NEW"


class FormatTooOld(CorruptState):
    """The state was written by an older Lethe; begin with an empty store and an empty log."""

    code = "FORMAT_TOO_OLD"


FROM_EMPTY = (
    "name an empty store (--data-dir or --redis) and an empty log, and register the models there "
    "again, or run the older release"
)
"""What to do about state of an older format: nothing converts it."""


def check_format(stored: int, known: int, what: str) -> None:
    """Refuse a format that is not the one that this program reads and writes.

    Raises
    ------
    FormatTooNew, FormatTooOld
        ``what`` was written by a newer or by an older Lethe.
    """
    if stored == known:
        return
    told = f"{what} has format {stored}, and this program reads {known}"
    if stored > known:
        raise FormatTooNew(f"{told}; upgrade it")
    raise FormatTooOld(f"{told}; {FROM_EMPTY}")


class CommitConflict(LetheError):
    """Another worker committed first: the partition has moved to it."""

    code = "COMMIT_CONFLICT"


class BrokenChain(LetheError):
    """A version does not link to the one before it, or its digest does not match its content."""

    code = "BROKEN_CHAIN"
    exit_code = 1


class Unauthenticated(LetheError):
    """An event is unsigned, or not signed by a key that is trusted."""

    code = "UNAUTHENTICATED"


class Unavailable(LetheError):
    """A needed server cannot be reached."""

    code = "UNAVAILABLE"
    exit_code = 3


class StoreUnavailable(Unavailable):
    """Redis or Valkey cannot be reached, or did not answer in time."""

    code = "STORE_UNAVAILABLE"


class NotDurable(LetheError):
    """The store would acknowledge writes that a crash loses."""

    code = "NOT_DURABLE"


class LogUnavailable(Unavailable):
    """The log (Kafka or Redis Streams) cannot be reached, or did not answer in time."""

    code = "LOG_UNAVAILABLE"


class RegistryUnavailable(Unavailable):
    """The registry that a mirror writes to cannot be reached, or did not answer in time."""

    code = "REGISTRY_UNAVAILABLE"


class ClusterUnavailable(Unavailable):
    """The cluster that reads rows in files (Dask) cannot be reached, or lost its workers."""

    code = "CLUSTER_UNAVAILABLE"


class LogReset(LetheError):
    """A position lies outside what the partition holds: records were lost or the log was reset."""

    code = "LOG_RESET"


class RefreshFailed(LetheError):
    """A refresh that is needed, or that a caller waited for, did not create a version."""

    code = "REFRESH_FAILED"
    exit_code = 1
