"""What a commit publishes is its event, also where bytes are put in as they are."""

from __future__ import annotations

import numpy as np
import pytest

from lethe.consumers.commits import publish
from lethe.consumers.commits.publish import parameters_event, parameters_message
from lethe.consumers.contract import version_chain
from lethe.consumers.contract.events import Parameters, Version
from lethe.engine.fit.objective import Kind
from lethe.engine.store.layout.columns import FittedColumn, Step, packed_columns
from lethe.engine.store.layout.config import ModelConfig
from tests.support.published import releases

COLUMNS = (
    FittedColumn(name="age", step="numeric", impute=1.5, mean=40.0, deviation=9.5),
    FittedColumn(name="naïve", step="one-hot", categories=("a", None, 3, True), vanished=(1,)),
    FittedColumn(name="post", step="target-encode", categories=("x",), values=(0.5,), otherwise=1),
)
CONFIG = ModelConfig(
    model_id="churn",
    kind=Kind.LINEAR,
    method="exact",
    ridge=1.0,
    fit_intercept=True,
    feature_names=("a", "b"),
    target_names=("y",),
    error_budget=0.01,
)


@pytest.fixture
def version() -> Version:
    return releases(1)[0].version


def test_columns_that_are_put_in_as_json_make_the_same_event(version: Version) -> None:
    theta = np.array([[0.1], [-2.5e-7], [3.0]])
    value = parameters_message(version, CONFIG, theta, packed_columns(COLUMNS)).value
    assert value is not None
    assert value == parameters_event(version, CONFIG, theta, COLUMNS).value()
    assert Parameters.model_validate_json(value).columns == COLUMNS


def test_columns_stay_where_theta_is_named_by_uri(
    version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "PARAMETERS_LIMIT", 0)
    message = parameters_message(version, CONFIG, np.zeros((3, 1)), packed_columns(COLUMNS))
    event = Parameters.model_validate_json(message.value or b"")
    assert (event.theta, event.columns) == (None, COLUMNS)
    assert event.uri is not None


@pytest.mark.parametrize("step", ["one-hot", "target-encode"])
def test_a_category_of_another_type_has_another_digest(step: Step) -> None:
    theta = np.zeros((2, 1))
    digests = [
        version_chain.parameters_digest(
            theta,
            ["c"],
            ["y"],
            fit_intercept=True,
            columns=[FittedColumn(name="c", step=step, categories=(category,))],
        )
        for category in (1, True)
    ]
    assert digests[0] != digests[1]
