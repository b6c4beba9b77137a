"""Names made of the values of columns: ids of rows and subjects, and ids of requests. Pure.

The id of a row with one key column is its value; of a composite key, the values are
percent-encoded and joined by ``/``, so that no two rows share an id.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from lethe.consumers.cdc.change import Origin
from lethe.consumers.cdc.mapping import ColumnType
from lethe.engine.ids import MAX_ID_LENGTH

UNAVAILABLE = "__debezium_unavailable_value"
"""What Debezium writes for a large value that an update left as it was."""

_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_STRING_MODE = "set decimal.handling.mode=string in the connector"


class Unnamed(ValueError):
    """Columns that make no id; the message names the column and never its value."""


def id_of(
    columns: Mapping[str, ColumnType], row: Mapping[str, Any], encoded: Collection[str] = ()
) -> str:
    """Return the id that a row's columns make.

    Parameters
    ----------
    columns
        The columns, in order, with their types.
    row
        The values of at least these columns.
    encoded
        Columns that are known to be base64 of a number.

    Raises
    ------
    Unnamed
        A value is missing, empty or of another type, or the id is too long.
    """
    values = [_text(name, kind, row, encoded) for name, kind in columns.items()]
    name = joined(values)
    if len(name) > MAX_ID_LENGTH:
        raise Unnamed(f"the id has {len(name)} characters; an id has at most {MAX_ID_LENGTH}")
    return name


def joined(values: Sequence[str]) -> str:
    """Return the id that the values of key columns make: one as it is, several encoded."""
    return values[0] if len(values) == 1 else "/".join(quote(one, safe="") for one in values)


def _text(name: str, kind: ColumnType, row: Mapping[str, Any], encoded: Collection[str]) -> str:
    value = row.get(name)
    if name in encoded or isinstance(value, dict):
        raise Unnamed(f"column {name!r} is base64 of a number: {_STRING_MODE}")
    if value in (None, "", UNAVAILABLE):
        raise Unnamed(f"column {name!r} is empty or is not in the record")
    if kind == "integer":
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        raise Unnamed(
            f"column {name!r} is not a whole number; if it is numeric in the database, its type in "
            f'the mapping is "decimal", and {_STRING_MODE}'
        )
    if not isinstance(value, str):
        raise Unnamed(f"column {name!r} is not text; see its type in the mapping")
    if kind == "decimal" and not _DECIMAL.fullmatch(value):
        raise Unnamed(f"column {name!r} is not a decimal number: {_STRING_MODE}")
    if not value.strip() or not _encodable(value):
        raise Unnamed(f"column {name!r} is blank, or not text that UTF-8 can encode")
    return value


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def request_id_of(origin: Origin, model_id: str, op: str, name: str) -> str:
    """Return the id of a request: the same each time that the connector sends the change.

    A killed connector sends changes again, with another ``sequence`` and at another offset; what
    stays is the place in the database's own log, and the row.
    """
    parts = [
        *(origin.connector, origin.database, origin.table, origin.lsn, origin.transaction),
        *(model_id, op, name),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
