"""Requests that schemathesis generates from the OpenAPI document, sent to the application."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import booleans

from lethe.consumers.contract.signatures import Signer
from lethe.consumers.server.app import create_app
from lethe.consumers.server.opendsr.opened import opendsr_on
from tests.support.http_server import services_of
from tests.support.memory_log import MemoryLog
from tests.support.platform import Platform

MODEL = "m"


@contextmanager
def application(url: str, directory: Path) -> Iterator[FastAPI]:
    """Yield the application beside a store at ``url`` that has one model, and a log in memory."""
    with ExitStack() as stack, redis.Redis.from_url(url) as client:
        client.flushdb()
        platform = Platform(MemoryLog(), url)
        stack.callback(platform.close)
        platform.register(MODEL)
        services = stack.enter_context(services_of(platform, directory))
        app = create_app(services)
        file = directory / "opendsr.toml"
        file.write_text('domain = "lethe.example.com"\n[[identities]]\ntype = "email"\n')
        signer = Signer(Ed25519PrivateKey.generate())
        stack.enter_context(opendsr_on(app, services, file, signer))
        yield app


def _make_known(case: Any) -> None:
    """Let a request be for the model that there is, or for identities that map to subjects."""
    if "model_id" in (case.path_parameters or {}):
        case.path_parameters["model_id"] = MODEL
    identities = case.body.get("subject_identities") if isinstance(case.body, dict) else None
    if isinstance(identities, list) and all(isinstance(one, dict) for one in identities):
        case.body.pop("status_callback_urls", None)  # which are allowed nowhere here
        for one in identities:
            one |= {"identity_type": "email", "identity_format": "raw"}


def try_all(app: FastAPI, cases: int) -> Counter[tuple[str, int]]:
    """Send about ``cases`` requests, as many to each operation; count answers by operation, status.

    Raises
    ------
    AssertionError
        An answer is a server error, or not what the document says.
    """
    import schemathesis  # an optional tool: `make setup-all`
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    ]
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    operations = [found.ok() for found in schema.get_all_operations()]
    answers: Counter[tuple[str, int]] = Counter()

    def try_one(operation: Any) -> None:
        @settings(
            max_examples=-(-cases // len(operations)),
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(), known=booleans())
        def send(case: Any, known: bool) -> None:
            if known:  # else most requests would be for no model, and for nobody
                _make_known(case)
            answer = case.call()
            answers[operation.label, answer.status_code] += 1
            case.validate_response(answer, checks=checks)

        send()

    for operation in operations:
        try_one(operation)
    return answers
