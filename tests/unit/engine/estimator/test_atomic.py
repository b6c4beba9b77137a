"""Whatever raises inside a change or a refresh, and wherever: the model stays as it was."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import lethe.engine
from lethe import LinearModel, LogisticModel, Numeric, PoissonModel, SoftmaxModel
from lethe.engine.errors import IllConditioned, LetheError

ENGINE = Path(lethe.engine.__file__).resolve().parent
NUMERICS = ("deletion", "error", "fit", "refresh", "preprocess")
# What only overwrites rows that are gone, the last statement of a change: it calls nothing that can
# fail.
HARMLESS = ("classes.py", "table.py")
CALLS = 24
"""Of each operation's calls, so many are failed, evenly spread."""


class FailingCall:
    """Raises at the n-th call of a function of the engine's numerics; counts them if n is None."""

    def __init__(self, n: int | None) -> None:
        self.n, self.count = n, 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Look at one event of the interpreter."""
        path = Path(frame.f_code.co_filename)
        if event != "call" or path.name in HARMLESS or frame.f_code.co_name.startswith("<"):
            return
        parts = path.parts[-3:]
        if not any(part in NUMERICS for part in parts[:-1]) or "engine" not in str(path):
            return
        self.count += 1
        if self.count == self.n:
            raise IllConditioned(f"made to fail in {path.name}, {frame.f_code.co_name}")

    def run(self, operation: Callable[[], object]) -> Exception | None:
        """Run an operation; return what it raised."""
        before = sys.getprofile()
        sys.setprofile(self)
        try:
            operation()
        except LetheError as error:
            return error
        finally:
            sys.setprofile(before)
        return None


def rows(n: int, seed: int, kind: str) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    margin = X @ [1.0, -0.5, 0.3] + rng.normal(size=n)
    y: Any = margin
    if kind == "logistic":
        y = (margin > 0).astype(int)
    elif kind == "poisson":
        y = rng.poisson(np.exp(np.clip(margin, -2, 2)))
    elif kind == "softmax":
        y = np.digitize(margin, [-0.5, 0.5])
    return X, y


def fitted(kind: str) -> Any:
    X, y = rows(40, 1, kind.removesuffix(" pipeline"))
    if kind.endswith("pipeline"):
        columns = {name: Numeric() for name in "abc"}
        made = LinearModel if kind.startswith("linear") else LogisticModel
        model: Any = made(preprocess=columns)
        return model.fit({name: X[:, j] for j, name in enumerate("abc")}, y)
    kinds: dict[str, Any] = {
        "linear": LinearModel, "logistic": LogisticModel, "poisson": PoissonModel,
        "softmax": SoftmaxModel,
    }  # fmt: skip
    return kinds[kind](ridge=0.1).fit(X, y)


def table(kind: str, X: Any) -> Any:
    return {name: X[:, j] for j, name in enumerate("abc")} if kind.endswith("pipeline") else X


OPERATIONS: dict[str, Callable[[Any, str], object]] = {
    "delete": lambda model, _: model.delete(["1", "2"], method="pru"),
    "delete by another method": lambda model, _: model.delete(["3"], method="exact"),
    "delete nearly all": lambda model, _: model.delete([str(i) for i in range(36)]),
    "insert": lambda model, kind: model.insert(
        table(kind, rows(3, 7, kind.removesuffix(" pipeline"))[0]),
        rows(3, 7, kind.removesuffix(" pipeline"))[1],
        ["n1", "n2", "n3"],
    ),
    "correct": lambda model, kind: model.correct(
        table(kind, rows(2, 8, kind.removesuffix(" pipeline"))[0]),
        rows(2, 8, kind.removesuffix(" pipeline"))[1],
        ["4", "5"],
    ),
    "refresh": lambda model, _: model.refresh(),
    "complete": lambda model, _: model.refresh("complete"),
    "polish": lambda model, _: model.refresh("polish"),
    "compact": lambda model, _: model.refresh("compact"),
    "rebuild": lambda model, _: model.refresh("rebuild", without=["6"]),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    "kind", ["linear", "logistic", "poisson", "softmax", "linear pipeline", "logistic pipeline"]
)
def test_an_operation_that_fails_at_any_call_changes_nothing(kind: str, operation: str) -> None:
    model = fitted(kind)
    model.delete(["10", "11"], method="pru")
    before, do = pickle.dumps(model), OPERATIONS[operation]
    whole, counting = deepcopy(model), FailingCall(None)
    assert counting.run(lambda: do(whole, kind)) is None
    raised = 0
    for n in sorted({*np.linspace(1, counting.count, CALLS).astype(int).tolist()}):
        failing, once = deepcopy(model), FailingCall(n)
        same = pickle.dumps(failing)
        error = once.run(lambda failing=failing: do(failing, kind))  # type: ignore[misc]
        if error is None:  # what it was part of has another way
            continue
        raised += 1
        assert pickle.dumps(failing) == same, error
    assert raised > 0 or counting.count == 0
    assert pickle.dumps(model) == before


def test_a_polish_whose_rebuild_is_refused_leaves_the_model_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = fitted("logistic")
    model.delete([str(i) for i in range(12)], method="exact")
    before = pickle.dumps(model)

    def refused(*_: object) -> None:
        raise IllConditioned("made to fail")

    state = type(model._fitted)
    polish = state.polish
    monkeypatch.setattr(state, "polish", lambda self, target: polish(self, target) + np.inf)
    monkeypatch.setattr(state, "rebuild", refused)
    model.error_budget = 1e-12
    before = pickle.dumps(model)
    with pytest.raises(IllConditioned, match="made to fail"):
        model.refresh()
    assert pickle.dumps(model) == before
