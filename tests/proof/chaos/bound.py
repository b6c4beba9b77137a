"""The promise about theta: where a version carries a bound, theta is within it of retraining."""

from __future__ import annotations

import random
import time

import numpy as np

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import Parameters
from lethe.consumers.contract.version_chain import theta_of
from tests.proof.chaos.facts import Facts, Verdict
from tests.proof.chaos.history import Json
from tests.proof.live_rows import data_of
from tests.proof.tables import TableData, refitted
from tests.support.oracles import distance, retrain_wide


def theta_within_its_bound(facts: Facts, seconds: float = 30.0, seed: int = 0) -> Verdict:
    """Retrain for every version that carries a bound, as many as time allows.

    The oracle is `tests.support.oracles`, in extended precision, begun at the published parameters:
    where it begins does not change where it ends. The newest version of each model comes first, the
    others in an order drawn at random.
    """
    verdict = Verdict("versions whose theta is outside its bound of retraining")
    deadline = time.monotonic() + seconds
    found = {
        (record.key.decode(), (record.data or {})["digest"]): record.value
        for record in facts.history.topics.get(topics.MODELS, [])
    }
    newest, others = [], []
    for model in facts.history.data:
        distinct = {version["digest"]: version for version in facts.versions[model]}
        bounded = [v for v in distinct.values() if v["error"]["bound"] is not None]
        verdict.notes["carry none"] += len(distinct) - len(bounded)
        newest += bounded[-1:]
        others += bounded[:-1]
    random.Random(seed).shuffle(others)
    worst = 0.0
    for version in newest + others:
        value = found.get((version["model_id"], version["digest"]))
        if value is None:
            verdict.notes["whose parameters are gone"] += 1
            continue
        if time.monotonic() > deadline:
            verdict.notes["not looked at"] += 1
            continue
        far = _distance(facts, version, Parameters.model_validate_json(value))
        bound = float(version["error"]["bound"])
        worst = max(worst, far / bound if bound else 0.0)
        good = far <= bound
        name = f"{version['model_id']} version {version['version']}"
        verdict.check(good, f"{name}: {far:.3e} from retraining, and its bound is {bound:.3e}")
    verdict.notes["the nearest came to its bound, in percent"] = round(100 * worst)
    return verdict


def _distance(facts: Facts, version: Json, parameters: Parameters) -> float:
    model = version["model_id"]
    rows, theta = facts.history.rows[model].at(version["version"]), theta_of(parameters)
    registered = facts.history.data[model]
    data = data_of(rows, registered)
    if not rows:
        return float(np.linalg.norm(theta))
    penalised = version["status"] == "INTERCEPT_PENALISED"
    if isinstance(data, TableData) and isinstance(registered, TableData):
        return float(distance(theta, refitted(data, registered, penalised=penalised)))
    penalty = np.full(len(data.penalty), data.ridge) if penalised else data.penalty
    truth = retrain_wide(data.kind, data.design, data.y, data.weight, penalty, start=theta)
    return distance(theta, truth)
