"""Reading the body of a request: JSON, and the identity of what is asked."""

from __future__ import annotations

import uuid
from typing import Any

from fastapi import Request

from lethe.consumers.contract.events import STEPS
from lethe.consumers.server.problems import Problem
from lethe.engine.errors import InvalidRequest
from lethe.engine.store.layout.reading import parse_json

JSON = "application/json"

MAX_DEPTH = 16
"""Deepest nesting of a body: a request needs two levels, and its ``reason`` is up to the sender."""


async def json_object(request: Request) -> dict[str, Any]:
    """Return the JSON object in a body.

    Raises
    ------
    Problem
        415: it is not sent as JSON. 400: it is not a JSON object.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != JSON:
        raise Problem(415, "UNSUPPORTED_MEDIA_TYPE", f"send the body as Content-Type: {JSON}")
    body = await request.body()
    try:
        data = parse_json(body, ours=True)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise invalid(f"the body is not JSON: {str(error).splitlines()[0]}") from None
    if not isinstance(data, dict):
        raise invalid("the body is not a JSON object")
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _depth(data) > MAX_DEPTH:
        raise _too_deep()
    return data


def _depth(data: Any) -> int:
    """Return how deep arrays and objects are nested, without recursion."""
    depth, level = 0, [data]
    while level := [one for one in level if isinstance(one, list | dict)]:
        depth += 1
        level = [
            inner for one in level for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return depth


def _too_deep() -> Problem:
    return invalid(f"the body is nested deeper than {MAX_DEPTH} levels")


def with_identity(data: dict[str, Any], request: Request, name: str) -> dict[str, Any]:
    """Return ``data`` with its identity in member ``name``.

    The member itself counts, or else the header ``Idempotency-Key``, or else a new random id.

    Raises
    ------
    Problem
        Member and header name different ids, or one that no path can have.
    """
    key = request.headers.get("idempotency-key")
    if key is not None and len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]  # a string in the notation of structured fields
    given = data.get(name)
    if given in STEPS or key in STEPS:
        raise invalid(f"{name} is a step in a path: nobody could read its outcome; choose another")
    if given is None:
        return {**data, name: str(uuid.uuid4()) if key is None else key}
    if key is not None and key != given:
        raise invalid(f"{name} and Idempotency-Key name different ids; send one of them")
    return data


def invalid(detail: str) -> Problem:
    """Return the answer for a body that does not follow the contract."""
    return Problem(400, InvalidRequest.code, detail)
