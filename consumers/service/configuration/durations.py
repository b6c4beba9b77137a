"""Spans of time as people write them: 30s, 15m, 24h, 7d."""

from __future__ import annotations

import re
from typing import Any

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def seconds_of(value: Any) -> Any:
    """Return a span such as 15m, or a number, in seconds; return anything else unchanged.

    The caller rejects invalid values.
    """
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)([smhdw]?)", str(value).strip())
    return value if match is None else float(match[1]) * _UNITS.get(match[2], 1)
