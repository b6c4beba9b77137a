"""The codes of receipts: why a request is rejected, or waits (docs/events.md, A receipt).

Exceptions of the engine bring a code of their own (`engine.errors`): those that reach a receipt are
here as well. The auditor (`consumers.audit.published`) has copies, to share no mistake.
"""

from __future__ import annotations

# -- of a request, whatever the model is -----------------------------------------------------------

INVALID_REQUEST = "INVALID_REQUEST"
TOO_MANY_ROWS = "TOO_MANY_ROWS"
UNAUTHENTICATED = "UNAUTHENTICATED"
"""In dead letters only: such a request gets no receipt."""
REQUEST_ID_CONFLICT = "REQUEST_ID_CONFLICT"
"""The id was used for another request, whose receipt stands."""

# -- of a model that has nothing to delete ---------------------------------------------------------

UNKNOWN_MODEL = "UNKNOWN_MODEL"
"""Not stored: a request that is sent again once the model is registered is processed."""
MODEL_UNREGISTERED = "MODEL_UNREGISTERED"
UNKNOWN_ROWS = "UNKNOWN_ROWS"
HOLDS_NOTHING = frozenset({UNKNOWN_ROWS, MODEL_UNREGISTERED})
"""The model holds no row that the request names: for an erasure, as good as deleted."""

# -- of rows that wait for a refresh (of changes of rows: that are rejected until then) ------------

AWAITING_REBUILD = "AWAITING_REBUILD"
DATA_LOST = "DATA_LOST"
"""The store has lost rows, so that nobody knows which rows the request would change."""
GENERATION_FULL = "GENERATION_FULL"
TEMPORARY = (GENERATION_FULL, AWAITING_REBUILD, DATA_LOST)
"""A change of rows that was rejected with one of these may be sent again after a refresh."""
ILL_CONDITIONED = "ILL_CONDITIONED"
STATISTICS_MOVED = "STATISTICS_MOVED"
ONE_CLASS_LEFT = "ONE_CLASS_LEFT"
CLASS_EMPTIED = "CLASS_EMPTIED"
OVER_BUDGET = "OVER_BUDGET"
CERTIFICATE_SPENT = "CERTIFICATE_SPENT"
VERSIONS_SPENT = "VERSIONS_SPENT"
"""The terms of the model's output noise allow no further version."""
BUDGET_UNREACHABLE = "BUDGET_UNREACHABLE"
"""Final: a rebuild without the rows is over the error budget, and nothing was deleted."""

# -- of changes of rows ----------------------------------------------------------------------------

SUBJECT_ERASED = "SUBJECT_ERASED"
ROW_EXISTS = "ROW_EXISTS"
ROW_DELETED = "ROW_DELETED"
ROW_UNKNOWN = "ROW_UNKNOWN"
SCHEMA = "SCHEMA"
OUT_OF_RANGE = "OUT_OF_RANGE"
MODEL_EMPTY = "MODEL_EMPTY"
UNSUPPORTED = "UNSUPPORTED"
