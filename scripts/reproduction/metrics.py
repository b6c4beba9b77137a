"""The paper's two metrics (its section "Evaluation Metrics")."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def l2_ratio(
    theta: NDArray[np.float64], full: NDArray[np.float64], retrained: NDArray[np.float64]
) -> float:
    """Return |theta - theta_LKO| / |theta_full - theta_LKO|: 0 is perfect, 1 is no update."""
    return float(np.linalg.norm(theta - retrained) / np.linalg.norm(full - retrained))


def feature_injection(theta: NDArray[np.float64], full: NDArray[np.float64]) -> float:
    """Return the feature injection test (FIT): injected (last) weight after / before; 0 is perfect.

    The paper prints it without a sign; here the sign is kept: below 0 the weight was overshot.
    """
    return float(theta[-1] / full[-1])


def relative_error(theta: NDArray[np.float64], retrained: NDArray[np.float64]) -> float:
    """Return |theta - theta_LKO| / |theta_LKO|."""
    return float(np.linalg.norm(theta - retrained) / np.linalg.norm(retrained))
