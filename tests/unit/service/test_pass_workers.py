"""What computes passes over rows in files, as the settings say."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from lethe.consumers.passes import dask_cluster, spark
from lethe.consumers.service.configuration.settings import Settings
from lethe.consumers.service.connect import _workers
from lethe.engine.errors import InvalidData


def test_nothing_else_computes_them_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LETHE_DASK_ADDRESS", raising=False)
    monkeypatch.delenv("LETHE_DASK_WORKERS", raising=False)
    monkeypatch.delenv("LETHE_SPARK_MASTER", raising=False)
    with ExitStack() as stack:
        assert _workers(Settings(), stack) is None


@pytest.mark.parametrize(
    "given",
    [
        {"dask_address": "tcp://scheduler:8786", "dask_workers": 2},
        {"dask_address": "tcp://scheduler:8786", "spark_master": "yarn"},
    ],
)
def test_of_several_one_must_be_chosen(given: dict[str, str | int]) -> None:
    settings = Settings.model_validate(given)
    with ExitStack() as stack, pytest.raises(InvalidData, match="give one of them"):
        _workers(settings, stack)


@pytest.mark.parametrize(
    ("given", "extra"),
    [
        ({"dask_address": "tcp://scheduler:8786"}, "dask"),
        ({"dask_workers": 2}, "dask"),
        ({"spark_master": "local[2]"}, "spark"),
    ],
)
def test_a_missing_extra_is_named_before_anything_is_read(
    given: dict[str, str | int], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (dask_cluster, spark):
        monkeypatch.setattr(module, "find_spec", lambda _: None)
    settings = Settings.model_validate(given)
    named = rf"pip install 'lethe-engine\[{extra}\]'"
    with ExitStack() as stack, pytest.raises(InvalidData, match=named):
        _workers(settings, stack)
