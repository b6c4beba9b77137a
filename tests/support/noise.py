"""Certified models: rows that suit them, and what every version of theirs keeps to."""

from __future__ import annotations

import numpy as np
import pytest

from lethe.consumers.contract.events import Version
from lethe.consumers.contract.version_chain import theta_of
from lethe.engine.error.terms import ObjectiveNoise, OutputNoise
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.records import CertificateRecord, OutputCertificateRecord
from tests.support.families import Data
from tests.support.invariants import (
    check_receipts,
    check_rows,
    check_versions,
    live_mask,
    retrained,
)
from tests.support.oracles import distance
from tests.support.platform import Platform

TERMS = ObjectiveNoise(1.0, 1e-4, 5.0)
N, P = 300, 5
LINEAR = OutputNoise(1.0, 1e-4, 1e-9, 100)
LOGISTIC = OutputNoise(1.0, 1e-4, 1e-4, 100)


def rows_of(kind: str, seed: int = 0, n: int = N) -> Data:
    """Rows of length about 1, as certified removal wants them."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, P)) / np.sqrt(P)
    signal = 2 * X.sum(axis=1, keepdims=True)
    y = signal + 0.3 * rng.standard_normal((n, 1))
    if kind == "logistic":
        y = (rng.random((n, 1)) < 1 / (1 + np.exp(-signal))).astype(np.float64)
    return Data("certified", kind, X, y, np.ones(n), 1.0, True, rng.permutation(n)[: n // 2])


def gradient(platform: Platform, theta: np.ndarray, noise: np.ndarray) -> float:
    """Return |gradient| of the perturbed objective over the live rows, in extended precision."""
    data, live = platform.data["m"], live_mask(platform)
    X = data.design[live].astype(np.longdouble)
    margin = X @ theta
    mean = margin if data.kind == "linear" else 1 / (1 + np.exp(-margin))
    total = X.T @ (mean - data.y[live]) + data.ridge * theta + noise
    return float(np.linalg.norm(total.astype(np.float64)))


def noise_of(platform: Platform) -> np.ndarray:
    """Return the stored noise of the live generation."""
    state = platform.load()
    stored = platform.raw().hget(state.generation_keys.fixed, "noise")
    assert isinstance(stored, bytes)
    return codec.unpack(stored, (state.meta.config.d, state.meta.config.m), "noise")


def check_certified(platform: Platform) -> Version:
    """Check the invariants that hold of any model, and the certificate of every version."""
    check_versions(platform, "m")
    check_receipts(platform, "m")
    check_rows(platform, "m")
    for version in platform.versions():
        assert isinstance(version.certificate, CertificateRecord)
        assert version.certificate.spent <= version.certificate.budget
    newest = platform.newest_version()
    state = platform.load()
    if state.meta.rows_live:
        true = gradient(platform, state.stream.published, noise_of(platform))
        assert isinstance(newest.certificate, CertificateRecord)
        assert true <= newest.certificate.spent
    return newest


def check_noised(platform: Platform, terms: OutputNoise) -> None:
    """Check what holds of any model, how far theta_exact is, and the noise of what is published."""
    check_versions(platform, "m")
    check_receipts(platform, "m")
    check_rows(platform, "m")
    state = platform.load()
    exact = state.stream.theta_exact
    assert distance(exact, retrained(platform, penalised=True)) <= terms.alpha
    away = float(np.linalg.norm(theta_of(platform.parameters("m")) - exact))
    assert 0 < away <= terms.radius(exact.shape)
    for version in platform.versions():
        certificate = version.certificate
        assert isinstance(certificate, OutputCertificateRecord)
        if certificate.versions == terms.versions:
            assert version.error.bound == pytest.approx(terms.alpha + terms.radius(exact.shape))
