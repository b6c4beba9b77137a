"""Spans of time as people write them: 30s, 15m, 24h, 7d."""

from __future__ import annotations

import re
from typing import Any

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def seconds_of(value: Any) -> Any:
    """Return the seconds of a span such as 15m or of a number; anything else as it is.

    What it is then is for the caller to refuse.
    """
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)([smhdw]?)", str(value).strip())
    return value if found is None else float(found[1]) * _UNITS.get(found[2], 1)
