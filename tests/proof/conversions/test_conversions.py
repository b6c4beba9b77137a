"""Each setting of scikit-learn's estimators becomes the right model, or is refused by name."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace

import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline

from lethe import LinearModel
from lethe.engine.conversion.parameters import FREE, PARAMETERS
from tests.proof.conversions import battery, estimators, pipelines, transformers
from tests.proof.conversions.estimators import Values
from tests.proof.conversions.judging import Verdict, judged
from tests.proof.conversions.setting import Setting

VALUES: dict[type, Values] = {
    **{kind: values for kind, (values, _) in estimators.CLASSES.items()},
    **transformers.KNOWN,
    **transformers.COMPUTED,
    ColumnTransformer: pipelines.COLUMN_TRANSFORMER,
    Pipeline: pipelines.PIPELINE,
}
NEEDED = {
    "ColumnTransformer": [[]],
    "FeatureUnion": [[]],
    "OneVsRestClassifier": [Ridge()],
    "Pipeline": [[]],
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's, of what stops early or is deprecated
        yield


@pytest.mark.parametrize("kind", PARAMETERS, ids=lambda kind: kind.__name__)
def test_the_battery_has_values_of_each_parameter_of_the_installed_scikit_learn(kind: type) -> None:
    assert set(kind(*NEEDED.get(kind.__name__, [])).get_params(deep=False)) <= set(VALUES[kind])


def test_each_documented_value_makes_the_right_model_or_is_refused_by_name() -> None:
    found = battery.judge_all(battery.chosen())
    assert not battery.failures(found)
    assert len(found) >= 200
    assert sum(outcome.verdict is Verdict.ACCEPTED for _, outcome in found) >= 80


@pytest.mark.parametrize("seed", [101, 102, 103, 104])
def test_drawn_settings_make_the_right_model_or_are_refused_by_name(seed: int) -> None:
    found = battery.judge_all(battery.drawn(seed, 150))
    assert not battery.failures(found)
    assert sum(outcome.verdict is Verdict.ACCEPTED for _, outcome in found) >= 100


def test_the_judge_sees_another_estimator_by_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PARAMETERS[Ridge], "positive", FREE)
    given = Setting("Ridge", True, Ridge(positive=True), "numbers", "number")
    outcome = judged(given)
    assert outcome.verdict is Verdict.FAILED
    assert outcome.distance > 0.01


def test_the_judge_wants_what_is_expected() -> None:
    right = Setting("Ridge", True, Ridge(), "numbers", "number")
    assert judged(right).verdict is Verdict.ACCEPTED
    assert judged(replace(right, offences=(("alpha",),))).verdict is Verdict.FAILED
    wrong = replace(right, linear=False, offences=(("Ridge: use LinearModel",),))
    assert judged(wrong).verdict is Verdict.REFUSED
    assert judged(replace(wrong, offences=())).verdict is Verdict.FAILED
    assert judged(replace(wrong, offences=(("Ridge(alpha",),))).verdict is Verdict.FAILED


def test_the_judge_takes_a_crash_for_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object, **__: object) -> None:
        raise TypeError("alpha")

    monkeypatch.setattr(LinearModel, "from_sklearn", crash)
    given = Setting("Ridge", True, Ridge(alpha=0.0), "numbers", "number", (("alpha",),))
    outcome = judged(given)
    assert (outcome.verdict, outcome.message) == (Verdict.FAILED, "TypeError: alpha")
