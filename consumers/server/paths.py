"""Ids in paths, percent-encoded, one segment each; and in names of files.

An id may hold any character, a slash too. Servers usually decode the whole path before they split
it, which would turn ``a%2Fb`` into two segments; `RawPath` splits first.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote, unquote

from fastapi import Path
from pydantic import BeforeValidator
from starlette.types import ASGIApp, Receive, Scope, Send


def segment(text: str) -> str:
    """Return an id as a segment of a path."""
    return quote(text, safe="")


def file_name(name: str) -> str:
    """Return an id so that it can be part of a file's name."""
    kept = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)
    return kept.lstrip("-.") or "model"


def attachment(name: str) -> dict[str, str]:
    """Return the header that has a browser save an answer under a name."""
    plain = file_name(name).encode("ascii", "replace").decode().replace("?", "-")
    return {"Content-Disposition": f'attachment; filename="{plain}"'}


def _decoded(value: str) -> str:
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 once it is percent-decoded") from None


PathId = Annotated[str, Path(min_length=1, max_length=128), BeforeValidator(_decoded)]
"""A parameter of a path that is an id."""


class RawPath:
    """Lets routes match the path as it was sent, percent-encoded."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] == "http" and scope.get("raw_path"):
            scope["path"] = scope["raw_path"].decode("ascii", errors="replace")
        await self._app(scope, receive, send)
