"""A real run of erasures, and their evidence as files: complete, unknown, waiting, incomplete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.audited import FIT, Made
from tests.support.command import Within
from tests.support.training import write

ERASURES = {"gone": "h5", "stranger": "nobody", "again": "h5", "partly": "h7", "waiting": "h8"}
"""Erasures and whom they are of. ``gone`` and ``again`` are of the same person; a model that nobody
can search was there when ``partly`` was sent; no worker has finished ``waiting``."""


@contextmanager
def erased_run(folder: Path) -> Iterator[Made]:
    """Erase people from a linear and a logistic model, and write ``ID`` and ``ID.own`` of each."""
    store = folder / "store"
    rows = {kind: write(folder / f"{kind}.parquet", logistic=kind == "logistic")
            for kind in ("linear", "logistic")}  # fmt: skip
    with EmbeddedValkey(store):
        lethe = Within(store)
        for kind, path in rows.items():
            lethe("register", kind, "--data", str(path), *FIT, "--kind", kind)
        lethe("delete", "linear", "--row", "u1", "u2", "--request-id", "r1")
        lethe("work", "--until-idle")
        for erasure in ("gone", "stranger", "again"):
            lethe("erase", ERASURES[erasure], "--erasure-id", erasure)
            lethe("delete", "logistic", "--row", "u3", "--request-id", f"beside-{erasure}")
            lethe("work", "--until-idle")
        blind = [one for one in FIT if one not in ("--subject", "household")]
        lethe("register", "blind", "--data", str(rows["linear"]), *blind, "--kind", "linear")
        lethe("erase", ERASURES["partly"], "--erasure-id", "partly")
        lethe("work", "--until-idle")
        for erasure, subject in ERASURES.items():
            if erasure != "waiting":
                export = ("erasures", erasure, "--bundle", str(folder / erasure))
                lethe(*export)
                lethe(*export[:-1], str(folder / f"{erasure}.own"), "--own-copy", subject)
        shown = lethe("key", "show", str(store / "signing-key.pem"))
        (folder / "trusted.pub").write_text(shown.out)
        yield Made(lethe, folder)
