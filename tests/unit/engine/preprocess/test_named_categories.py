"""OneHotEncoder and OrdinalEncoder whose categories are given, and numbers for unknown ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from lethe import LinearModel
from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot, Ordinal
from tests.support.encoded import KINDS, Pair, rows
from tests.unit.engine.preprocess.test_rounded import Exact

NAMED = [list("dcbae"), list("zyxw")]  # e and w have no row


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("drop", [None, "first"])
@pytest.mark.parametrize("scaled", [False, True], ids=["", "scaled"])
def test_a_category_that_is_named_has_a_feature_with_and_without_rows(
    scaled: bool, drop: Any, kind: str
) -> None:
    hot = OneHotEncoder(categories=NAMED, drop=drop, sparse_output=False)
    pair = Pair(make_pipeline(hot, StandardScaler()) if scaled else hot, kind)
    assert pair.model.preprocess["town"] == OneHot(
        drop=drop, standardise=scaled, categories=tuple("dcbae")
    )
    pair.check()
    pair.delete(list(pair.live)[:10])
    pair.correct(3, 1)
    pair.check()
    pair.delete(sorted({*pair.of("town", "a"), *pair.of("kind", "x")}))
    pair.check()
    new = pair.X.iloc[:1].assign(town="e", kind="w")
    pair.insert(new, pair.y[:1], ["new"])
    pair.check()
    with pytest.raises(InvalidData, match="'f', which is not among its named categories"):
        pair.insert(new.assign(town="f"), pair.y[:1], ["other"])
    with pytest.raises(InvalidData, match="column 'town' holds 'f'"):
        pair.model.predict(new.assign(town="f"))
    pair.delete(pair.of("town", "d"))  # the first of those that are named
    pair.check()


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("named", [False, True], ids=["sorted", "named"])
def test_an_unknown_category_has_the_number_that_is_given(named: bool, kind: str) -> None:
    given: dict[str, Any] = {"categories": NAMED} if named else {}
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, **given)
    pair = Pair(make_pipeline(encoder, StandardScaler()), kind)
    assert pair.model.preprocess["kind"] == Ordinal(tuple("zyxw") if named else None, True, -1)
    pair.check()
    pair.check_unknown()
    pair.delete(pair.of("town", "a"))
    pair.check()
    pair.check_unknown()


def test_every_parameter_is_right_to_the_last_bit() -> None:
    rng = np.random.default_rng(3)
    columns: Columns = {
        "x": Numeric(),
        "h": OneHot(categories=tuple("rqps")),
        "g": OneHot(categories=tuple("qrp"), drop="first", standardise=True),
    }
    hot = np.array(list("pqr") * 10, dtype=object)
    table = {"x": rng.standard_normal(30), "h": hot, "g": rng.permutation(hot)}
    exact = Exact(columns, table, rng.standard_normal(30))
    for gone in ([], [str(i) for i in range(0, 30, 3)]):  # every p
        exact.delete(*gone)
        state: Any = exact.model.prepared
        theta = state.published[np.append(~state.left_out, True)]
        assert theta.tobytes() == exact.expected().tobytes()


def test_what_cannot_be_named_is_refused() -> None:
    with pytest.raises(InvalidData, match="categories of an OneHot must be distinct, and none"):
        OneHot(categories=("a", "a"))
    with pytest.raises(InvalidData, match="categories beside min_frequency or max_categories"):
        OneHot(categories=("a", "b"), min_frequency=3)
    for number in (0, 5, 1.5, True):
        with pytest.raises(InvalidData, match="unknown must be None or a whole number below 0"):
            Ordinal(unknown=number)  # type: ignore[arg-type]
    X, y = rows(60)
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=7)
    with pytest.raises(InvalidData, match="column 'town', OrdinalEncoder: unknown must be None"):
        LinearModel.from_sklearn(
            make_pipeline(encoder, Ridge()).fit(X[["town"]], y), X[["town"]], y
        )
    with pytest.raises(InvalidData, match=r"column 'town' holds '.', which is not among its named"):
        LinearModel(preprocess={"town": OneHot(categories=("b", "c"))}).fit(X[["town"]], y)
