"""Categories as files and messages spell them: the same one with types and without.

A CSV file holds text, and Parquet, JSON and data frames hold types. So that a column means the same
in all of them, text of which every value spells true or false, or a whole number, holds those. And
a value for a column that is known is the category that it spells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from lethe.engine.preprocess.input.columns import Category

_TRUTH = {"true": True, "false": False}
_WHOLE = re.compile(r"(0|-?[1-9][0-9]{0,14})(\.0*)?")
"""With a leading zero it names something, such as a postcode; with more digits, programs round it.
(A column of whole numbers with gaps is often written with ".0".)"""


def said(text: str) -> Category:
    """Return what text spells: true, false, a whole number, nothing (None), or only itself."""
    plain = text.strip()
    if not plain:
        return None
    whole = _WHOLE.fullmatch(plain)
    return int(whole[1]) if whole else _TRUTH.get(plain.lower(), text)


def categories_of(texts: Sequence[str | None]) -> list[Category]:
    """Return the categories that a column of text holds: all of one kind, None where missing."""
    spelled = [None if text is None else said(text) for text in texts]
    kinds = {type(one) for one in spelled if one is not None}
    if len(kinds) == 1:
        return spelled
    return [None if one is None else text for one, text in zip(spelled, texts, strict=True)]


def matched(known: Sequence[Category], values: Iterable[Category]) -> list[Category]:
    """Return values as the known categories that they spell; what spells none stays as it is.

    The number 7 is "7" of a column of text, and "7" is 7 of a column of numbers; true is "True".
    Blank text is missing. What two known categories spell is neither.
    """
    exact = {one: one for one in known}
    spelled: dict[Category, list[Category]] = {}
    for one in known:
        spelled.setdefault(_meant(one), []).append(one)

    def category(value: Category) -> Category:
        if value in exact:
            return exact[value]
        meant = _meant(value)
        found = spelled.get(meant, [])
        return found[0] if len(found) == 1 else None if meant is None else value

    return [category(value) for value in values]


def _meant(value: Category) -> Category:
    return said(value) if isinstance(value, str) else value
