"""OneHotEncoder(drop=...): from a pipeline, through changes, and back to one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.preprocessing import OneHotEncoder

from lethe import LinearModel
from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot
from tests.support.encoded import KINDS, Pair, rows
from tests.unit.engine.preprocess.test_rounded import Exact

DROPS: dict[str, Any] = {
    "first": "first",
    "if_binary": "if_binary",
    "named": np.array(["c", "y"], dtype=object),
}


def encoder(drop: Any) -> OneHotEncoder:
    return OneHotEncoder(drop=drop, sparse_output=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("drop", DROPS)
def test_which_category_is_left_out_follows_the_live_rows(drop: str, kind: str) -> None:
    pair = Pair(encoder(DROPS[drop]), kind)
    pair.check()
    pair.delete(list(pair.live)[:10])
    pair.correct(3, 1)
    pair.check()
    gone = pair.X.iloc[[pair.live[name] for name in (*pair.of("town", "a"), *pair.of("kind", "x"))]]
    pair.delete(sorted({*pair.of("town", "a"), *pair.of("kind", "x")}))  # kind has two now
    pair.check()
    pair.delete(list(pair.live)[:3])
    pair.check()
    back = gone.iloc[:1].reset_index(drop=True).assign(kind="x", town="a")
    pair.insert(back, np.array([1 if kind == "logistic" else 0.5]), ["back"])
    pair.check()
    pair.insert(back.assign(kind="new", town="0"), pair.y[:1], ["new"])
    pair.check()


@pytest.mark.parametrize("drop", ["first", "if_binary", ("q",)])
def test_with_a_category_left_out_every_parameter_is_right_to_the_last_bit(drop: Any) -> None:
    rng = np.random.default_rng(3)
    columns: Columns = {"x": Numeric(), "h": OneHot(drop=drop)}
    table = {"x": rng.standard_normal(30), "h": np.array(list("pqr") * 10, dtype=object)}
    for options in ({}, {"fit_intercept": False}):
        given: Columns = columns if not options else {"h": columns["h"]}
        named = {name: table[str(name)] for name in given}
        exact = Exact(given, named, rng.standard_normal(30), **options)
        assert exact.holds()
        exact.delete(*(str(i) for i in range(0, 30, 3)))  # every p
        assert exact.holds()


def test_a_category_that_is_left_out_is_known_and_its_weight_0() -> None:
    X, y = rows(60)
    for features in (200, 0):
        columns: Columns = {"age": Numeric(), "town": OneHot(drop="first"), "kind": OneHot()}
        model = LinearModel(preprocess=columns, rounded_features=features).fit(X, y)
        assert model.theta[1] == 0.0
        assert np.isfinite(model.predict(X)).all()
        with pytest.raises(InvalidData, match="'town' holds 'e'"):
            model.predict(X.assign(town="e"))


def test_what_cannot_be_left_out_is_refused() -> None:
    with pytest.raises(InvalidData, match="drop must be None, 'first', 'if_binary' or one"):
        OneHot(drop="last")  # type: ignore[arg-type]
    X, y = rows(60)
    model = LinearModel(preprocess={"town": OneHot(drop=("e",))})
    with pytest.raises(InvalidData, match="column 'town' leaves out 'e', which no row has"):
        model.fit(X[["town"]], y)
