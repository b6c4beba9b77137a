"""What models are asked for in tests of events, and who judges what came of it.

A workload registers the model ``m``, sends requests in rounds that never name a row twice, and
compares what is published with retraining on a table of its own. `Workload.judge` adds what holds
of any model: a receipt for each request, a whole chain of commits, and nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from lethe.consumers.audit.rational_refit import rational_refit
from lethe.consumers.contract.version_chain import theta_of
from lethe.engine.error.terms import ObjectiveNoise, OutputNoise
from lethe.engine.fit.objective import Kind, Rows as Weighted
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot, TargetEncode
from lethe.engine.store.counts import lost_keys
from lethe.engine.store.server.connection import connect
from tests.support import noise
from tests.support.crash_lane import check_row_keys
from tests.support.evidence import check_receipt_log
from tests.support.families import Array, Data
from tests.support.invariants import (
    check_commits,
    check_model,
    check_row_files,
    check_rows,
    check_versions,
)
from tests.support.platform import Platform
from tests.support.prepared import PreparedTable
from tests.support.tables import Table

FEW: Columns = {"a": Numeric(), "b": Numeric(), "town": OneHot(), "post": TargetEncode()}
"""Columns with which errors of logistic and Poisson pipelines are bounded between two rebuilds."""


STANDARD: Columns = {"a": Numeric(), "b": Numeric(), "town": OneHot()}
"""Of these, none is encoded by a target: for several classes."""


class Workload:
    """The requests of one model, by rows that are deleted, and its judge."""

    def __init__(
        self,
        platform: Platform,
        family: str | Data = "benign",
        kind: str = "linear",
        **options: Any,
    ) -> None:
        self.platform, self.family, self.kind = platform, family, kind
        self.options: dict[str, Any] = {"method": "pru", "budget": 10.0, **options}
        self.requests: list[str] = []
        self._rounds = 0

    def register(self, **options: Any) -> None:
        """Register the model, or register it again."""
        self.platform.register("m", self.family, self.kind, **self.options, **options)

    def ask(self) -> list[str]:
        """Send the requests of the next round; return their ids."""
        sent = self._send(self._rounds)
        self._rounds += 1
        self.requests += sent
        return sent

    def work(self) -> None:
        """Send the next round, and run until everything is decided."""
        self.ask()
        self.platform.drain()

    def _send(self, number: int) -> list[str]:
        for one in self.requests[-1:]:  # what was asked for before, once more
            self.platform.send("m", *self.platform.asked["m", one], request_id=one)
        rows = (f"row-{3 * number}", f"row-{max(0, 3 * number - 3)}")
        return [
            self.platform.send("m", "a stranger", *dict.fromkeys(rows)),
            self.platform.send_index("m", 3 * number + 1),
        ]

    def delete(self, row: int) -> str:
        """Send a request to delete one row, which no round names."""
        self.requests.append(self._delete(row))
        return self.requests[-1]

    def _delete(self, row: int) -> str:
        return self.platform.send_index("m", row)

    def judge(self, strangers: Sequence[str] = ()) -> None:
        """Check that each request was answered once, and what the model has become.

        ``strangers`` are requests that name no row of the model.
        """
        platform = self.platform
        finals = platform.finals("m")
        for request in strangers:
            assert finals.pop(request).code == "UNKNOWN_ROWS"
        assert finals.keys() == set(self.requests)
        assert {receipt.status for receipt in finals.values()} <= {"APPLIED", "ALREADY_APPLIED"}
        assert lost_keys(platform.raw(), ["m"]) == {}
        assert not platform.dead_letters()
        self.check()

    def check(self) -> None:
        """Check the model: by default with all that `tests.support.invariants` knows."""
        check_model(self.platform)


class Encrypted(Workload):
    """Deletions of a model whose row records are encrypted."""

    def register(self, **options: Any) -> None:
        """Register the model, with the keys of its rows in another database."""
        self.platform.keys_url = urlsplit(self.platform.url)._replace(path="/15").geturl()
        with closing(connect(self.platform.keys_url)) as keys:
            keys.flushdb()
        self.platform.reconnect()
        super().register(**options)

    def check(self) -> None:
        """Check that live rows have their keys, and deleted rows have none."""
        super().check()
        check_row_keys(self.platform)


class EncryptedFiles(Encrypted):
    """Deletions of a model whose rows are in encrypted files."""

    def __init__(self, platform: Platform, **options: Any) -> None:
        super().__init__(platform, rows_url=platform.folder(), **options)

    def check(self) -> None:
        """Check that live files have their keys, and no others are left."""
        super().check()
        check_row_files(self.platform)


class InFiles(Workload):
    """Deletions of a model whose rows are in files."""

    def __init__(self, platform: Platform, **options: Any) -> None:
        super().__init__(platform, rows_url=platform.folder(), **options)

    def check(self) -> None:
        """Check that no file holds a row that was deleted before its root was made."""
        super().check()
        check_row_files(self.platform)


class Certified(Workload):
    """Deletions of a model with noise in its objective, or on its output."""

    def __init__(
        self,
        platform: Platform,
        kind: str,
        terms: ObjectiveNoise | OutputNoise,
        *,
        files: bool = False,
    ) -> None:
        where = {"rows_url": platform.folder()} if files else {}
        data = noise.rows_of(kind)
        super().__init__(platform, data, kind, method="exact", budget=1.0, certify=terms, **where)
        self.terms = terms

    def check(self) -> None:
        """Check the certificate of every version, and what is published."""
        check_commits(self.platform, "m")
        check_row_files(self.platform)
        if isinstance(self.terms, ObjectiveNoise):
            noise.check_certified(self.platform)
        else:
            noise.check_noised(self.platform, self.terms)


class Changes(Workload):
    """Rows that are inserted, corrected and deleted."""

    table: Table
    inserted = 2

    def register(self, **options: Any) -> None:
        """Register the model; its table is what was registered."""
        super().register(**options)
        self.table = Table(self.platform)

    def _send(self, number: int) -> list[str]:
        table, name = self.table, f"new-{number}"
        rows = [table.row(f"{name}-{i}") for i in range(1, self.inserted)]
        return [
            table.change("insert", table.row(f"{name}-0", weight=2.0), *rows),
            table.change("correct", table.row(f"row-{3 * number + 1}"), table.row(f"{name}-0")),
            table.delete(f"row-{3 * number}"),
        ]

    def _delete(self, row: int) -> str:
        return self.table.delete(f"row-{row}")

    def check(self) -> None:
        """Check the live rows, and the exact answer against retraining on them."""
        check_versions(self.platform, "m")
        check_receipt_log(self.platform, "m")
        check_rows(self.platform, "m")
        check_commits(self.platform, "m")
        self.table.check()


class ExactSums(Changes):
    """Row changes of a model with exact sums: its parameters have the bits of retraining."""

    inserted = 12  # so many that the sums are written whole now and then

    def check(self) -> None:
        """Check the exact answer to the last bit."""
        super().check()
        state, theta = self.platform.load(), minimiser(self.table)
        assert np.array_equal(state.stream.theta_exact, theta)
        assert len(state.stream.V) == 0
        if len(state.stream.Q) == 0:
            assert state.meta.error.kind == "rounded"
            assert np.array_equal(theta_of(self.platform.parameters("m")), theta)


class ChangesInFiles(ExactSums):
    """Row changes of a model whose rows are in files."""

    def __init__(self, platform: Platform, **options: Any) -> None:
        super().__init__(platform, exact_sums=True, rows_url=platform.folder(), **options)

    def check(self) -> None:
        """Check files, too."""
        super().check()
        check_row_files(self.platform)


class Pipeline(Workload):
    """Row changes of a model with preprocessing."""

    def __init__(
        self, platform: Platform, method: str = "pru", *, files: bool = False, **table: Any
    ) -> None:
        super().__init__(platform, method=method)
        if files:
            table |= {"rows_url": platform.folder()}
        self.table = PreparedTable(platform, **table)
        self._draw = np.random.default_rng(2)

    def register(self, **options: Any) -> None:
        """Register the pipeline."""
        self.table.register(**self.options, **options)

    def _send(self, number: int) -> list[str]:
        table, new = self.table, len(self.table.y)
        return [
            table.change("insert", new, new + 1, rng=self._draw),
            table.change("correct", 3 * number + 1, new, rng=self._draw),
            table.delete(3 * number),
        ]

    def _delete(self, row: int) -> str:
        return self.table.delete(row)

    def check(self) -> None:
        """Check what is published against scikit-learn's pipeline, fitted to the live rows."""
        check_receipt_log(self.platform, "m")
        check_rows(self.platform, "m")
        check_commits(self.platform, "m")
        check_row_files(self.platform)
        self.table.check()


def minimiser(table: Table) -> Array:
    """Return the minimiser on a table's rows by rational arithmetic, correctly rounded."""
    values = list(table.rows.values())
    X = np.array([x for x, _, _ in values])
    if table.data.intercept:
        X = np.hstack([X, np.ones((len(X), 1))])
    y, weight = np.array([y for _, y, _ in values]), np.array([w for _, _, w in values])
    return rational_refit(Weighted(X, y, weight), table.data.penalty)


WORKLOADS: dict[str, Callable[[Platform], Workload]] = {
    "linear": Workload,
    "completed": partial(Workload, budget=1e-6),
    "linear-exact": partial(Workload, method="exact"),
    "influence": partial(Workload, family="wide", method="influence"),
    "logistic": partial(Workload, kind="logistic"),
    "logistic-exact": partial(Workload, kind="logistic", method="exact"),
    "classes": partial(Workload, family="classes", kind="logistic"),
    "counts": partial(Workload, kind="poisson"),
    "softmax": partial(Workload, family="classes", kind="softmax"),
    "softmax-exact": partial(Workload, family="classes", kind="softmax", method="exact"),
    "disclosure": partial(Workload, method="exact", disclosure=True),
    "certified": partial(Certified, kind="logistic", terms=noise.TERMS),
    "noise": partial(Certified, kind="linear", terms=noise.LINEAR),
    "noise-logistic": partial(Certified, kind="logistic", terms=noise.LOGISTIC),
    "changes": Changes,
    "changes-influence": partial(Changes, method="influence"),
    "sums": partial(ExactSums, method="exact", exact_sums=True),
    "sums-pru": partial(ExactSums, exact_sums=True),
    "files": partial(InFiles, exact_sums=True),
    "files-exact": partial(InFiles, method="exact", exact_sums=True),
    "files-linear": InFiles,
    "files-logistic": partial(InFiles, kind="logistic"),
    "files-counts": partial(InFiles, kind="poisson"),
    "files-classes": partial(InFiles, family="classes", kind="logistic", method="exact"),
    "files-certified": partial(Certified, kind="logistic", terms=noise.TERMS, files=True),
    "files-noise": partial(Certified, kind="linear", terms=noise.LINEAR, files=True),
    "files-disclosure": partial(InFiles, method="exact", disclosure=True),
    "files-changes": partial(ChangesInFiles, method="exact"),
    "files-changes-pru": ChangesInFiles,
    "pipeline": Pipeline,
    "pipeline-exact": partial(Pipeline, method="exact"),
    "pipeline-sums": partial(Pipeline, exact_sums=True),
    "files-pipeline": partial(Pipeline, files=True, exact_sums=True),
    "files-pipeline-linear": partial(Pipeline, files=True, method="exact"),
    "pipeline-logistic": partial(Pipeline, n=1500, columns=FEW, kind=Kind.LOGISTIC),
    "files-pipeline-logistic": partial(
        Pipeline, files=True, n=1500, columns=FEW, kind=Kind.LOGISTIC
    ),
    "pipeline-classes": partial(
        Pipeline, n=1500, columns=STANDARD, kind=Kind.LOGISTIC, classes=("a", "b", "c")
    ),
    "files-pipeline-classes": partial(
        Pipeline, files=True, n=1500, columns=STANDARD, kind=Kind.LOGISTIC, classes=("a", "b", "c")
    ),
    "pipeline-counts": partial(Pipeline, n=1500, columns=FEW, kind=Kind.POISSON),
    "files-pipeline-counts": partial(Pipeline, files=True, n=1500, columns=FEW, kind=Kind.POISSON),
}

ENCRYPTED: dict[str, Callable[[Platform], Workload]] = {
    "encrypted": Encrypted,
    "encrypted-sums": partial(Encrypted, method="exact", exact_sums=True),
    "encrypted-classes": partial(Encrypted, family="classes", kind="logistic"),
    "encrypted-counts": partial(Encrypted, kind="poisson"),
    "encrypted-softmax": partial(Encrypted, family="classes", kind="softmax"),
    "encrypted-files": partial(EncryptedFiles, exact_sums=True),
    "encrypted-files-logistic": partial(EncryptedFiles, kind="logistic"),
}
"""Where the store goes back without the keys, their rows are lost: they stand apart."""

ENCRYPTED_FILES = ("encrypted-files", "encrypted-files-logistic")
"""Of these no row is lost: the log names the files whose keys are there."""

MAIN = (
    "linear", "logistic", "classes", "noise", "changes", "sums", "files", "files-logistic",
    "files-changes", "pipeline", "pipeline-sums", "files-pipeline", "files-pipeline-linear",
)  # fmt: skip
"""One of each kind that is kept in the store in another way."""
