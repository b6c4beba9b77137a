"""What computes passes over rows in files, as the settings say."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from lethe.consumers.passes import dask_cluster
from lethe.consumers.service.configuration.settings import Settings
from lethe.consumers.service.connect import _workers
from lethe.engine.errors import InvalidData


def test_nothing_else_computes_them_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LETHE_DASK_ADDRESS", raising=False)
    monkeypatch.delenv("LETHE_DASK_WORKERS", raising=False)
    with ExitStack() as stack:
        assert _workers(Settings(), stack) is None


def test_a_cluster_and_processes_of_this_machine_are_not_both_taken() -> None:
    settings = Settings(dask_address="tcp://scheduler:8786", dask_workers=2)
    with ExitStack() as stack, pytest.raises(InvalidData, match="give one of them"):
        _workers(settings, stack)


@pytest.mark.parametrize("given", [{"dask_address": "tcp://scheduler:8786"}, {"dask_workers": 2}])
def test_a_missing_extra_is_named_before_anything_is_read(
    given: dict[str, str | int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cluster, "find_spec", lambda _: None)
    settings = Settings.model_validate(given)
    with ExitStack() as stack, pytest.raises(InvalidData, match=r"pip install 'lethe-engine\[dask"):
        _workers(settings, stack)
