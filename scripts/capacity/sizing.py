"""From users, models and erasures a day to workers, memory, storage, refresh cores and p99."""

from __future__ import annotations

import math
from dataclasses import dataclass

from capacity.calibration import Calibrated
from capacity.simulation import Costs, Place, poisson, simulate
from harness.results import RESULTS, read_table

DAY = 86_400.0
PARTITIONS = 16
FULL = 0.7
"""Of a worker or a store's processor that is planned for: beyond it, waiting grows steeply."""
STORE_BYTES, LOG_BYTES, RETENTION_DAYS, LANES = 64e9, 1e12, 30, 2
"""One machine, for what is the first bottleneck: its store, its log's disk, its refresh lanes."""
ID_BYTES = 40
SIMULATED = 20_000


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked for.

    Each user has one row in each of ``reach`` models, and an erasure asks each of these.
    ``peak`` is the busiest second's rate over the mean.
    """

    users: float
    models: int
    erasures: float
    reach: int = 10
    d: int = 100
    peak: float = 10.0
    kind: str = "linear"

    @property
    def reached(self) -> int:
        """Models that an erasure reaches."""
        return min(self.reach, self.models)

    @property
    def rows(self) -> float:
        """Rows of a model."""
        return self.users * self.reached / self.models

    @property
    def deletions(self) -> float:
        """Deletions a day."""
        return self.erasures * self.reached

    @property
    def rate(self) -> float:
        """Deletions a second, at the peak."""
        return self.deletions / DAY * self.peak


@dataclass(frozen=True, slots=True)
class Need:
    """What a load needs. Bytes, seconds; ``shares`` are of what one machine has."""

    workers: int
    primaries: int
    store: float
    store_of_files: float
    files: float
    log: float
    refresh_cores: float
    p50: float
    p99: float
    shares: dict[str, float]

    def bottleneck(self, files: bool) -> str:
        """Return the largest share, by name and in percent, with rows in files or in the store."""
        other = "store's memory, rows in it" if files else "store's memory"
        shares = {name: share for name, share in self.shares.items() if name != other}
        if not files:
            shares.pop("refresh lanes")
        name = max(shares, key=lambda one: shares[one])
        return f"{name.partition(',')[0]} ({figure(100 * shares[name])} %)"


def different(models: float, requests: float) -> float:
    """Return how many models so many requests are for, on average."""
    return models * -math.expm1(requests * math.log1p(-1.0 / models)) if models > 1 else 1.0


def turn_of(costs: Costs, rate: float, models: float, records: int) -> float:
    """Return how many requests a turn has once turns and arrivals are in balance."""
    size = 1.0
    for _ in range(200):
        size = min(float(records), max(1.0, rate * costs.seconds(different(models, size), size)))
    return size


def most(costs: Costs, models: float, records: int) -> float:
    """Return the requests a second of a worker whose turns are full."""
    return records / costs.seconds(different(models, records), records)


def need(load: Load, calibrated: Calibrated, records: int = 256) -> Need:
    """Return what a load needs, and what it takes of one machine."""
    costs = calibrated.costs(load.kind, load.d)
    busy = min(PARTITIONS, load.models)  # partitions with a model
    workers = next(
        (
            count
            for count in range(1, busy + 1)
            if load.rate / count <= FULL * most(costs, load.models / count, records)
        ),
        busy,
    )
    size = turn_of(costs, load.rate / workers, load.models / workers, records)
    stored = costs.store_seconds(different(load.models / workers, size), size) / size
    processor = load.rate * stored
    primaries = min(busy, max(1, math.ceil(processor / FULL)))
    place = Place(workers, PARTITIONS, primaries, records)
    number = int(min(SIMULATED, max(1_000, 60 * load.rate)))
    outcome = simulate(*poisson(load.rate, number, load.models, 1), costs, place, seed=2)
    receipt = next(
        float(row["value"])
        for row in read_table(RESULTS / "bench" / "costs.csv")
        if row["metric"] == "memory of a final request, beyond its id"
    )
    final = 365 * load.deletions * (receipt + ID_BYTES)
    store = load.models * calibrated.model_bytes(load.kind, load.rows, load.d) + final
    beside = load.models * calibrated.model_bytes(load.kind, 0, load.d) + final
    log = RETENTION_DAYS * load.deletions * calibrated.commit_bytes(load.kind)
    rebuilds = min(2.0 * load.models, load.deletions)  # a day: 12 hours after the first deletion
    refresh = rebuilds * calibrated.rebuild_seconds(load.rows, load.d) / DAY
    return Need(
        workers,
        primaries,
        store,
        beside,
        load.models * calibrated.file_bytes(load.rows, load.d),
        log,
        refresh,
        outcome.quantile(0.5),
        outcome.quantile(0.99),
        {
            "deletion worker": load.rate / most(costs, load.models, records),
            "one model": load.rate / load.models / most(costs, 1, records),
            "store's processor": processor,
            "store's memory, rows in it": store / STORE_BYTES,
            "store's memory": beside / STORE_BYTES,
            "refresh lanes": refresh / LANES,
            "log's disk": log / LOG_BYTES,
        },
    )


DECADES = [
    Load(10.0**k, models, 10.0 ** (k - 3))
    for k, models in zip(range(3, 10), (1, 1, 10, 100, 1_000, 10_000, 10_000), strict=True)
]


HEAD = (
    "users", "models", "erasures a day", "rows a model", "deletions/s, peak", "workers",
    "primaries", "p50, p99 ms", "commits of 30 days", "rows in the store: its memory",
    "first bottleneck", "rows in files: store", "files", "refresh cores", "first bottleneck",
)  # fmt: skip


def table(calibrated: Calibrated, loads: list[Load] | None = None) -> str:
    """Return what loads need, as a table in Markdown; only linear models have rows in files."""
    rows = [HEAD, ("---",) * len(HEAD)]
    for load in DECADES if loads is None else loads:
        found = need(load, calibrated)
        files = (
            size(found.store_of_files), size(found.files), figure(found.refresh_cores),
            found.bottleneck(files=True),
        )  # fmt: skip
        rows.append(
            (
                f"{load.users:,.0f}", f"{load.models:,}", f"{load.erasures:,.0f}",
                f"{load.rows:,.0f}", figure(load.rate), str(found.workers), str(found.primaries),
                f"{1e3 * found.p50:.0f}, {1e3 * found.p99:.0f}", size(found.log),
                size(found.store), found.bottleneck(files=False),
                *(files if load.kind == "linear" else ("",) * len(files)),
            )
        )  # fmt: skip
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def sizes(calibrated: Calibrated) -> str:
    """Return the bytes of a row in each store, as a table in Markdown."""
    lines = ["| bytes of a row | d = 20 | d = 100 |", "|---|---|---|"]
    many = 1_000_000
    for name, kind in (
        ("in the store, with dual rows (logistic)", "logistic"),
        ("in the store, of a model with exact sums", "linear"),
    ):
        per = [calibrated.sizes(kind)[:2] @ (1, d) for d in (20, 100)]
        lines.append(f"| {name} | {per[0]:.0f} | {per[1]:.0f} |")
    files = [calibrated.file_bytes(many, d) / many for d in (20, 100)]
    lines.append(f"| in files (Parquet buckets, their index) | {files[0]:.0f} | {files[1]:.0f} |")
    return "\n".join(lines)


def size(count: float) -> str:
    """Return bytes with a unit."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= scale:
            return f"{figure(count / scale)} {unit}"
    return f"{figure(count / 1e3)} KB"


def figure(value: float) -> str:
    """Return two digits that count."""
    return f"{float(f'{value:.2g}'):,g}"
