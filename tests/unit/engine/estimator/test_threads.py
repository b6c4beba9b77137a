"""Changes from several threads are made one after another; readers see whole states."""

from __future__ import annotations

import pickle
import threading
from copy import copy, deepcopy
from typing import Any

import numpy as np
import pytest

from lethe import LinearModel, LogisticModel, Numeric, PoissonModel, SoftmaxModel

THREADS = 4
ROWS = 200


def model_and_rows(kind: str) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(ROWS, 4))
    margin = X @ [1.0, -1.0, 0.5, 0.2] + rng.normal(size=ROWS)
    if kind == "linear":
        return LinearModel(), X, margin
    if kind == "pipeline":
        table = {name: X[:, j] for j, name in enumerate("abcd")}
        return LinearModel(preprocess={name: Numeric() for name in "abcd"}), table, margin
    if kind == "logistic":
        return LogisticModel(), X, (margin > 0).astype(int)
    if kind == "poisson":
        return PoissonModel(), X, rng.poisson(np.exp(np.clip(margin, -2, 2)))
    return SoftmaxModel(), X, np.digitize(margin, [-0.7, 0.7])


def take(X: Any, places: Any) -> Any:
    return {name: x[places] for name, x in X.items()} if isinstance(X, dict) else X[places]


@pytest.mark.parametrize("kind", ["linear", "pipeline", "logistic", "poisson", "softmax"])
def test_changes_from_four_threads_leave_what_one_thread_would(kind: str) -> None:
    model, X, y = model_and_rows(kind)
    model.fit(take(X, slice(0, 160)), y[:160])
    failures: list[BaseException] = []
    errors: list[Any] = []
    together = threading.Barrier(THREADS + 1)

    def change(t: int) -> None:
        try:
            together.wait()
            for i in range(10):
                model.delete([str(t * 20 + i)], method="exact")
                place = np.array([160 + t * 10 + i])
                model.insert(take(X, place), y[place], [str(place[0])], method="exact")
                if i % 5 == 4:
                    model.refresh("polish")
        except BaseException as error:
            failures.append(error)

    def read() -> None:
        try:
            together.wait()
            for _ in range(50):
                errors.append(model.error)
                assert np.isfinite(model.predict(take(X, slice(0, 5)))).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=change, args=(t,)) for t in range(THREADS)]
    threads.append(threading.Thread(target=read))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    left = [t * 20 + i for t in range(THREADS) for i in range(10, 20)] + list(range(80, 200))
    assert sorted(map(int, model.live_ids)) == left
    model.refresh("polish")
    truth = type(model)(**model.get_params()).fit(take(X, np.array(left)), y[left])
    gap = float(np.linalg.norm(model.published - truth.published))
    allowed = (model.error.bound or 1e-6) + (truth.error.bound or 1e-6)
    assert gap <= allowed
    assert allowed <= 1e-2 * float(np.linalg.norm(truth.published))


@pytest.mark.parametrize("copied", [copy, deepcopy, lambda m: pickle.loads(pickle.dumps(m))])  # noqa: S301
def test_a_copy_has_a_lock_of_its_own(copied: Any) -> None:
    model, X, y = model_and_rows("linear")
    model.fit(X, y)
    other = copied(model)
    with model._lock:
        done = threading.Thread(target=lambda: other.refresh("rebuild"))
        done.start()
        done.join(10)
        assert not done.is_alive()
