"""What only `make setup-all` installs: tests that need it skip on a laptop, and fail on CI."""

from __future__ import annotations

import importlib.util

from tests.conftest import give_up
from tests.support.servers import Missing


def need(*modules: str) -> None:
    """Give up when one of the modules is not installed."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            give_up(Missing(f"no {module} to test with: make setup-all"))
