from __future__ import annotations
import pytest, warnings
from sklearn.utils.estimator_checks import parametrize_with_checks
from lethe import LinearModel, LogisticModel
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    d = parametrize_with_checks([LinearModel(), LogisticModel()])
@d
def test_checks(estimator, check): check(estimator)
