"""Errors as ``application/problem+json`` (RFC 9457), with the code that a receipt would carry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from lethe.engine.errors import (
    InvalidData,
    InvalidRequest,
    LetheError,
    Unauthenticated,
    Unavailable,
    UnknownModel,
)

MEDIA_TYPE = "application/problem+json"
_RETRY_SECONDS = "1"  # a server that restarts or fails over is back in seconds
_DETAIL_LIMIT = 500
_BY_STATUS = MappingProxyType({404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED", 413: "TOO_LARGE"})

SCHEMA: Mapping[str, Any] = MappingProxyType(
    {
        "type": "object",
        "required": ["title", "status", "code", "detail"],
        "properties": {
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "code": {"type": "string", "description": "as in receipts (docs/events.md)"},
            "detail": {"type": "string", "description": "what happened, and what to do"},
            "request_id": {"type": "string", "description": "send it again with this id"},
        },
    }
)
"""JSON Schema of a problem."""


class Problem(Exception):
    """An answer that is an error; raise it from a route.

    Parameters
    ----------
    status, code, detail
        The HTTP status, the code of a receipt, and a sentence that says what to do.
    headers
        Further headers.
    members
        Further members of the document.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        headers: Mapping[str, str] = MappingProxyType({}),
        **members: object,
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail
        self.headers, self.members = headers, members

    def response(self) -> Response:
        """Return the answer."""
        document = {
            "title": self.code.replace("_", " ").capitalize(),
            "status": self.status,
            "code": self.code,
            "detail": self.detail[:_DETAIL_LIMIT],
            **self.members,
        }
        content = json.dumps(document).encode()
        return Response(content, self.status, dict(self.headers), MEDIA_TYPE)


def problem_of(error: LetheError) -> Problem:
    """Return the answer for one of our own errors."""
    if isinstance(error, UnknownModel):
        return Problem(404, error.code, str(error))
    if isinstance(error, Unavailable):
        return Problem(503, error.code, str(error), {"Retry-After": _RETRY_SECONDS})
    if isinstance(error, InvalidRequest | InvalidData):
        return Problem(400, error.code, str(error))
    if isinstance(error, Unauthenticated):
        return Problem(401, error.code, str(error))
    return Problem(500, error.code, str(error))


def unknown_model() -> Problem:
    """Return the answer for a model that is not there, or not for this key: nobody learns which."""
    return Problem(
        404, UnknownModel.code, "no such model; GET /v1/models lists those that you may use"
    )


def responses(*statuses: int | str) -> dict[int | str, dict[str, Any]]:
    """Return the documentation of a route's problems."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": "Problem", "content": content} for status in statuses}


def install(app: FastAPI) -> None:
    """Answer every error of ``app`` with a problem."""

    @app.exception_handler(Problem)
    async def _problem(_: Request, error: Problem) -> Response:
        return error.response()

    @app.exception_handler(LetheError)
    async def _ours(_: Request, error: LetheError) -> Response:
        return problem_of(error).response()

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return Problem(400, InvalidRequest.code, f"{place}: {first['msg']}").response()

    @app.exception_handler(HTTPException)
    async def _http(_: Request, error: HTTPException) -> Response:
        code = _BY_STATUS.get(error.status_code, InvalidRequest.code)
        headers = error.headers or {}
        return Problem(error.status_code, code, str(error.detail), headers).response()
