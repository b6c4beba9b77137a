"""The version of the stored format."""

from __future__ import annotations

from lethe.engine.errors import CorruptState, FormatTooNew, FormatTooOld
from lethe.engine.store.reading import MAX_DIGITS

FORMAT = 5
"""Version of the stored format: layout, script, commits and events together.

A program reads only the format that it writes. Nobody had state to migrate when format 5 came (the
log holds the commits, and the store is a view of it), so an older format is refused. Its keys have
other names, so `engine.store.former` looks for them.
"""


def check_format(stored: bytes | None, model_id: str) -> None:
    """Refuse a format that is not this program's.

    Raises
    ------
    FormatTooNew, FormatTooOld
        The state was written by a newer or by an older Lethe.
    CorruptState
        The stored format is not a number.
    """
    if stored is not None and not (stored.isdigit() and len(stored) <= MAX_DIGITS):
        raise CorruptState(f"model {model_id!r}: {stored[:20]!r} is not a format of a stored state")
    if stored is None or int(stored) == FORMAT:
        return
    what = f"model {model_id!r} is stored in format {int(stored)}, and this program reads {FORMAT}"
    if int(stored) > FORMAT:
        raise FormatTooNew(f"{what}; upgrade it")
    raise FormatTooOld(f"{what}; register the model again with `lethe register --replace`")
