"""A model's rows as a plain table: what requests of every kind should leave, by row id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.consumers.contract.version_chain import theta_of
from tests.support.families import Data
from tests.support.invariants import live_rows
from tests.support.oracles import Wide, distance, retrain_wide
from tests.support.platform import Platform, class_names, row_ids

Row = tuple[NDArray[np.float64], NDArray[np.float64], float]


class Table:
    """The rows that should be live; it makes requests and judges what they led to."""

    def __init__(self, platform: Platform, model_id: str = "m", seed: int = 0) -> None:
        self.platform, self.model_id = platform, model_id
        self.data: Data = platform.data[model_id]
        self.draw = np.random.default_rng(seed)
        self.classes = class_names(self.data)
        self.rows: dict[str, Row] = {
            name: (self.data.X[i], self.data.y[i], float(self.data.weight[i]))
            for i, name in enumerate(row_ids(self.data))
        }

    def row(self, row_id: str, weight: float | None = None) -> dict[str, Any]:
        """Return a row of new values, as a request has it."""
        x = self.draw.normal(size=self.data.X.shape[1]) * np.std(self.data.X, axis=0)
        values, target = [float(value) for value in x], self._target()
        fields: dict[str, Any] = {"id": row_id, "values": values, "target": target}
        return fields if weight is None else {**fields, "weight": weight}

    def _target(self) -> Any:
        """Return numbers; for a logistic model a class, by name if it has one."""
        y = self.data.y[int(self.draw.integers(len(self.data.y)))]
        if self.classes:
            return self.classes[int(np.argmax(y))]
        if self.data.kind == "logistic":
            return float(y[0])
        if self.data.kind == "poisson":
            return float(y[0])
        return [float(value) for value in self.draw.normal(size=len(y))]

    def change(self, op: str, *rows: dict[str, Any], request_id: str = "") -> str:
        """Send a request that should be applied."""
        self._set(op, rows)
        return self.platform.send_change(self.model_id, op, *rows, request_id=request_id)

    def _set(self, op: str, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            kept = self.rows[row["id"]][2] if op == "correct" else 1.0
            weight = row.get("weight", kept)
            target = row["target"]
            y = np.array(target) if isinstance(target, list) else np.array([target])
            if self.classes:
                y = np.array([float(name == target) for name in self.classes])
            self.rows[row["id"]] = (np.array(row["values"]), y, weight)

    def delete(self, *names: str) -> str:
        """Send a request to delete live rows."""
        for name in names:
            del self.rows[name]
        return self.platform.send(self.model_id, *names)

    def take(self, sent: Mapping[str, tuple[str, Sequence[dict[str, Any]]]]) -> None:
        """Do to the table what receipts say, in the order of versions.

        ``sent``: by request id, what was asked for and of which rows; of a deletion the ids.
        A request that is applied must fit the rows that were live before its version.
        """
        receipts = [
            r for r in self.platform.finals(self.model_id).values() if r.status == "APPLIED"
        ]
        for receipt in sorted(receipts, key=lambda r: (r.version or 0, r.source.offset)):
            op, rows = sent[receipt.request_id]
            names = {row["id"] for row in rows}
            live = names & self.rows.keys()
            if op == "delete":
                assert receipt.rows_deleted == len(live), receipt
                for name in live:
                    del self.rows[name]
            else:
                assert live == (names if op == "correct" else set()), receipt
                assert receipt.rows_inserted + receipt.rows_corrected == len(names)
                self._set(op, rows)

    def check(self, within: float = 1e-9) -> None:
        """Check the live rows, and the exact answer against retraining on them."""
        state = self.platform.load(self.model_id)
        assert state.meta.rows_live == len(self.rows)
        assert live_rows(self.platform, self.model_id) == set(self.rows)
        truth = self.retrained()
        assert distance(state.stream.theta_exact, truth) < within * np.linalg.norm(
            truth.astype(np.float64)
        )
        published = theta_of(self.platform.parameters(self.model_id))
        bound = state.meta.error.bound
        assert bound is not None
        assert distance(published, truth) <= bound

    def retrained(self) -> Wide:
        """Return the minimiser on the rows, in extended precision."""
        values = list(self.rows.values())
        X = np.array([x for x, _, _ in values])
        if self.data.intercept:
            X = np.hstack([X, np.ones((len(X), 1))])
        y, weight = np.array([y for _, y, _ in values]), np.array([w for _, _, w in values])
        return retrain_wide(self.data.kind, X, y, weight, self.data.penalty)


def registered_table(
    platform: Platform, family: str | Data = "benign", kind: str = "linear", **options: Any
) -> Table:
    """Register the model ``m`` of a family, and return its rows."""
    platform.register("m", family, kind, **options)
    return Table(platform)
