"""OneHotEncoder(min_frequency=..., max_categories=...): rare categories share a feature."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from lethe import LinearModel
from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot
from tests.support.encoded import KINDS, Pair, rows
from tests.unit.engine.preprocess.test_rounded import Exact

SETTINGS: dict[str, dict[str, Any]] = {
    "fewer than 8": {"min_frequency": 8},
    "less than a share": {"min_frequency": 0.06},
    "at most 2": {"max_categories": 2},
    "all": {"max_categories": 1},
    "both": {"min_frequency": 6, "max_categories": 3},
    "fewer than 8, the first dropped": {"min_frequency": 8, "drop": "first"},
    "at most 2, one dropped": {"max_categories": 2, "drop": "if_binary"},
}


def encoder(**given: Any) -> OneHotEncoder:
    return OneHotEncoder(sparse_output=False, **given)


@pytest.mark.parametrize(
    ("setting", "kind"),
    [(setting, kind) for setting in (*SETTINGS, "scaled", "all, scaled") for kind in KINDS[:2]]
    + [(setting, "logistic") for setting in ("both", "at most 2, one dropped", "scaled")],
)
def test_which_categories_are_rare_follows_the_live_rows(setting: str, kind: str) -> None:
    given = SETTINGS.get(setting.removesuffix(", scaled"), SETTINGS["fewer than 8"])
    hot = encoder(handle_unknown="infrequent_if_exist", **given)
    pair = Pair(make_pipeline(hot, StandardScaler()) if "scaled" in setting else hot, kind)
    pair.check()
    pair.check_unknown()
    for number in range(3):
        pair.delete([*pair.of("town", "a")[:1], *pair.of("kind", "x")[:2]][: 2 + number % 2])
        pair.correct(2, number)
        pair.check()
    gone = [*pair.of("town", "b")[4:], *pair.of("kind", "y")[9:]]  # b and y become rare
    back = pair.X.iloc[[pair.live[name] for name in gone]].reset_index(drop=True)
    y = pair.y[[pair.live[name] for name in gone]]
    pair.delete(sorted(set(gone)))
    pair.check()
    pair.insert(back, y, [f"again{i}" for i in range(len(y))])
    pair.check()
    pair.delete(pair.of("town", "a"))
    pair.check()
    pair.insert(back[:1].assign(kind="new", town="0"), pair.y[:1], ["new"])
    pair.check()
    pair.check_unknown()


def test_a_category_without_a_row_is_neither_rare_nor_frequent() -> None:
    X, y = rows(150)
    X["town"] = np.where(np.arange(150) < 3, "rare", X["town"])
    model = LinearModel(
        preprocess={"age": Numeric(), "town": OneHot(max_categories=4), "kind": OneHot()},
        rounded_features=0,
    ).fit(X, y)
    model.delete(["0", "1"], method="exact")
    model.delete(["2"], method="exact")  # the last of a rare category; another is rare as before
    assert model.prepared is not None
    assert model.prepared.generation.number == 0
    pipeline = make_pipeline(encoder(max_categories=4))
    theirs = clone(pipeline).fit(X[["town"]].iloc[3:]).transform(X[["town"]].iloc[3:])
    kept = ~model.prepared.left_out & (model.prepared.present > 0)
    ours = model.prepared.features(X.iloc[3:])[:, kept]
    np.testing.assert_array_equal(ours[:, 1:4], theirs[:, :3])


@pytest.mark.parametrize("given", [{}, {"standardise": True}, {"drop": "first"}])
def test_every_parameter_is_right_to_the_last_bit(given: Any) -> None:
    rng = np.random.default_rng(3)
    columns: Columns = {
        "x": Numeric(),
        "h": OneHot(min_frequency=6, **given),
        "g": OneHot(max_categories=3, **given),
    }
    hot = np.array(list("ppppppqqqqqqqrrrrrrrrstuuuuuu"), dtype=object)
    table = {"x": rng.standard_normal(29), "h": hot, "g": rng.permutation(hot)}
    exact = Exact(columns, table, rng.standard_normal(29))
    assert exact.holds()
    exact.delete("0")  # p is rare now
    assert exact.holds()
    exact.delete("21", "22")  # s and t are gone
    assert exact.holds()
    exact.change({"x": np.ones(1), "h": hot[:1], "g": hot[:1]}, np.ones(1), ["p again"])
    assert exact.holds()
    exact.model.delete(["1", "10"], method="pru")
    state: Any = exact.model.prepared
    assert not state.published[state.pipeline.live.idle.nonzero()[0]].any()


@pytest.mark.parametrize("features", [200, 0])
def test_predictions_of_unknown_categories_are_as_the_setting_says(features: int) -> None:
    X, y = rows(150)
    strange = X.assign(town="e")
    for unknown in ("error", "ignore", "infrequent_if_exist"):
        hot = encoder(min_frequency=12, handle_unknown=unknown)
        refit = make_pipeline(hot, StandardScaler()).fit(X[["town"]])
        model = LinearModel(
            preprocess={"town": OneHot(unknown, None, True, 12)},
            rounded_features=features,
        ).fit(X[["town"]], y)
        if unknown == "error":
            with pytest.raises(InvalidData, match="'town' holds 'e', which no live row"):
                model.predict(strange[["town"]])
            continue
        assert model.prepared is not None
        theirs = refit.transform(strange[["town"]])
        kept = ~model.prepared.left_out
        ours = model.prepared.features(strange[["town"]])[:, kept]
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
        assert model.prepared.feature_names[-1] == "town_infrequent_sklearn"


def test_missing_values_may_be_rare() -> None:
    X, y = rows(150)
    X["town"] = np.where(np.arange(150) < 6, None, X["town"])
    pipeline = make_pipeline(encoder(min_frequency=9), StandardScaler())
    for features in (200, 0):
        model = LinearModel(
            preprocess={"town": OneHot(min_frequency=9, standardise=True)},
            rounded_features=features,
        ).fit(X[["town"]], y)
        model.delete(["0", "20"], method="exact")
        kept = [i for i in range(150) if i not in (0, 20)]
        assert model.prepared is not None
        theirs = clone(pipeline).fit(X[["town"]].iloc[kept]).transform(X[["town"]])
        ours = model.prepared.features(X[["town"]])[:, ~model.prepared.left_out]
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
        plain = model.to_sklearn()
        np.testing.assert_allclose(plain.predict(X[["town"]]), model.predict(X[["town"]]))


def test_what_is_no_threshold_is_refused() -> None:
    for least in (0, 1.5, True, -3, "2"):
        with pytest.raises(InvalidData, match="min_frequency must be a whole number from 1, or"):
            OneHot(min_frequency=least)  # type: ignore[arg-type]
    for most in (0, 2.0, True):
        with pytest.raises(InvalidData, match="max_categories must be a whole number from 1"):
            OneHot(max_categories=most)  # type: ignore[arg-type]
    with pytest.raises(InvalidData, match="scikit-learn drops no category that is rare"):
        OneHot(drop=("a",), max_categories=3)
    X, y = rows(150)
    hot = encoder(drop=["b"], min_frequency=9)
    with pytest.raises(InvalidData, match="step 'onehotencoder', column 'town', OneHotEncoder: dr"):
        LinearModel.from_sklearn(make_pipeline(hot, Ridge()).fit(X[["town"]], y), X[["town"]], y)
    with pytest.raises(InvalidData, match="unknown must be 'error', 'ignore' or 'infrequent_if"):
        OneHot("warn")  # type: ignore[arg-type]
