"""No request that can be generated from the document makes the server fail."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.conftest import give_up
from tests.proof.http.generated import application, try_all
from tests.support.servers import Missing

pytestmark = pytest.mark.redis
CASES = 600


def test_no_generated_request_is_a_server_error(redis_url: str, tmp_path: Path) -> None:
    """`make http-fuzz` sends 20,000."""
    if importlib.util.find_spec("schemathesis") is None:
        give_up(Missing("no schemathesis to generate requests with: make setup-all"))
    with application(redis_url, tmp_path) as app:
        answers = try_all(app, CASES)

    assert answers.total() >= CASES // 2
    assert not [status for _, status in answers if status >= 500]
