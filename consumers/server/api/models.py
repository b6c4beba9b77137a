"""``/v1/models``: what is registered, its newest version and its parameters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel

from lethe.consumers.contract.events import Parameters, Version
from lethe.consumers.server.api.bodies import JSON
from lethe.consumers.server.guard import CallerOf, check_may_use
from lethe.consumers.server.paths import PathId
from lethe.consumers.server.problems import responses, unknown_model
from lethe.consumers.server.services import ServicesOf
from lethe.consumers.subscriber.parameters import StoredParameters
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.layout.meta import PendingJob
from lethe.engine.store.layout.reading import checked, parse_json_value
from lethe.engine.store.server.pipeline import run_pipeline
from lethe.engine.store.store import ModelStore

router = APIRouter(tags=["models"])

PAGE, MAX_PAGE = 100, 1_000
"""Entries of a page, unless told otherwise and at most: a version has about 1 KB."""

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="At most so many entries.")]
_UNREGISTERED = b"UNREGISTERED"


class PendingRefresh(BaseModel):
    """A refresh that a model waits for."""

    job_id: str
    reason: str
    ordered_at: datetime


class Model(BaseModel):
    """A registered model: its newest version, and what waits."""

    model_id: str
    newest: Version
    requests_deferred: int
    pending_refresh: PendingRefresh | None


class ModelsPage(BaseModel):
    """A page of models by id; ``next`` is the ``after`` of the next page, null on the last one."""

    models: tuple[Model, ...]
    next: str | None


@router.get("/v1/models", summary="List models", response_model=ModelsPage)
def list_models(
    services: ServicesOf,
    caller: CallerOf,
    after: Annotated[str, Query(max_length=128, description="`next` of the page before.")] = "",
    limit: Limit = PAGE,
) -> Response:
    """List the registered models that the key may touch, by id."""
    names = sorted(name for name in services.models.registered() if caller.allows(name))
    page = [name for name in names if name > after][: limit + 1]
    models = [model for model in _read(services.store, page[:limit]) if model is not None]
    following = page[limit - 1] if len(page) > limit else None
    return _answer({"models": models, "next": following})


@router.get(
    "/v1/models/{model_id}",
    summary="Read a model",
    response_model=Model,
    responses=responses(404),
)
def read_model(model_id: PathId, services: ServicesOf, caller: CallerOf) -> Response:
    """Read a model's newest version, and what waits for a refresh."""
    check_may_use(caller, model_id)
    [model] = _read(services.store, [model_id])
    if model is None:
        raise unknown_model()
    return _answer(model)


@router.get(
    "/v1/models/{model_id}/parameters",
    summary="Read a model's newest parameters",
    response_model=Parameters,
    responses={304: {"description": "Not newer than If-None-Match"}, **responses(404)},
)
def read_parameters(
    model_id: PathId, request: Request, services: ServicesOf, caller: CallerOf
) -> Response:
    """Read the newest parameters; ``ETag`` is the digest of their version."""
    check_may_use(caller, model_id)
    if not services.models.look_up(model_id):
        raise unknown_model()
    newest = StoredParameters(services.store.client).newest(model_id)
    if newest is None:
        raise unknown_model()
    parameters, _ = newest
    tag = {"ETag": f'"{parameters.digest}"'}
    if request.headers.get("if-none-match") == tag["ETag"]:
        return Response(None, 304, tag)
    return Response(parameters.value(), 200, tag, JSON)


def _read(store: ModelStore, names: Sequence[str]) -> list[dict[str, Any] | None]:
    """Return the document of each model, None for one that is not registered; one round trip."""

    def queue(pipeline: Any) -> None:
        for name in names:
            pipeline.hmget(ModelKeys(name).head, ["newest", "status", "meta"])
            pipeline.hlen(ModelKeys(name).deferred)

    answers = run_pipeline(store.client, (), queue)
    pairs = zip(names, answers[::2], answers[1::2], strict=True)
    return [_document(name, fields, int(deferred)) for name, fields, deferred in pairs]


def _document(
    model_id: str, fields: Sequence[bytes | None], deferred: int
) -> dict[str, Any] | None:
    newest, status, meta = fields
    if newest is None or status == _UNREGISTERED:
        return None
    what = f"model {model_id!r}, its stored head"
    pending = parse_json_value(meta, what).get("pending_job")
    job = None if pending is None else checked(PendingJob, pending, what).model_dump(mode="json")
    return {
        "model_id": model_id,
        "newest": parse_json_value(newest, what),
        "requests_deferred": deferred,
        "pending_refresh": job,
    }


def _answer(document: object) -> Response:
    return Response(json.dumps(document, ensure_ascii=False).encode(), media_type=JSON)
