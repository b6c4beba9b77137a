"""Structured logs: every line has an ``action``; lines about a request have its id.

Logs go to stderr, as text for people or as JSON (``LETHE_LOG_FORMAT=json``). Row ids and subjects
are personal data and are never logged; request ids are. A worker logs one line per commit;
``LETHE_LOG_LEVEL=DEBUG`` adds one per record.
"""

from __future__ import annotations

import logging
import sys
from typing import Literal, TypeAlias

import structlog

Logger: TypeAlias = structlog.typing.FilteringBoundLogger


def configure_logging(level: str = "INFO", style: Literal["console", "json"] = "console") -> None:
    """Send logs to stderr in one of two formats; libraries log from WARNING on."""
    formats: dict[str, list[structlog.typing.Processor]] = {
        "json": [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("message"),
            structlog.processors.JSONRenderer(),
        ],
        "console": [
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            # The default shows every frame's variables, which can hold row ids.
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ],
    }
    structlog.configure(
        processors=[structlog.processors.add_log_level, *formats[style]],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, force=True)


def logger(component: str) -> Logger:
    """Return a logger that names its component on every line."""
    bound: Logger = structlog.get_logger().bind(component=component)
    return bound


def log_defect(log: Logger, action: str, error: BaseException) -> None:
    """Log a defect of ours in one line; the traceback, which can hold row ids, at DEBUG alone."""
    log.error("defect", action=action, reason=type(error).__name__)
    log.debug("traceback of the defect", action=action, exc_info=error)
