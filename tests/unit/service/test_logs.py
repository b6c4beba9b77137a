"""What a log line shows, and what it must not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest
import structlog

from lethe.consumers.service.telemetry.logs import configure_logging, logger


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("style", ["console", "json"])
def test_a_traceback_shows_no_variables(
    style: Literal["console", "json"], capsys: pytest.CaptureFixture[str]
) -> None:
    """They can hold row ids, or a person's."""
    configure_logging("DEBUG", style)

    def read(row: str) -> None:
        if row:
            raise LookupError

    try:
        read(f"u{16 + 1}")
    except LookupError as error:
        logger("test").debug("traceback of the defect", action="test", exc_info=error)

    shown = capsys.readouterr().err
    assert "LookupError" in shown
    assert "in read" in shown
    assert "u17" not in shown
