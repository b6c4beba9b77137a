"""What a deletion costs where transformers are fitted anew: beside a fit of the whole Pipeline.

python -m tests.proof.pipelines.refit_cost      processor time, medians of 7, one thread
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, PolynomialFeatures, StandardScaler
from threadpoolctl import threadpool_limits

from lethe import LinearModel, Refitted

N, P, TIMES = 10_000, 20, 7
TRANSFORMERS = {
    "a selection of 10": SelectKBest(f_regression, k=10),
    "8 bins each": KBinsDiscretizer(
        8, encode="onehot-dense", quantile_method="averaged_inverted_cdf"
    ),
    "5 components, scaled": make_pipeline(StandardScaler(), PCA(5)),
    "squares and products, scaled": make_pipeline(StandardScaler(), PolynomialFeatures(2)),
}


def median(work: Callable[[int], object]) -> float:
    """Return the median processor time in milliseconds."""
    spent = []
    for i in range(TIMES):
        begin = time.process_time()
        work(i)
        spent.append(time.process_time() - begin)
    return 1e3 * float(np.median(spent))


def main() -> int:
    """Run the command."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, P))
    y = X @ rng.normal(size=P) + rng.normal(size=N)
    with threadpool_limits(1):
        for name, steps in TRANSFORMERS.items():
            model = LinearModel(preprocess=Refitted(steps)).fit(X, y)
            whole = make_pipeline(clone(steps), Ridge())

            def delete(i: int, model: LinearModel = model) -> object:
                return model.delete([str(i)], method="exact")

            def fit(i: int, whole: object = whole) -> object:
                return clone(whole).fit(X[i:], y[i:])

            one, fits = median(delete), median(fit)
            sys.stdout.write(f"{name:<30} {one:6.1f} ms, {one / fits:.1f} times the fit\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
