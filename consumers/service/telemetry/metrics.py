"""Prometheus metrics: one object, passed to the code that measures."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from lethe.consumers.service.telemetry.health import Health

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 60)
_WAITS = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600)
_ROWS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)


class Metrics:
    """All metrics of a worker, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(name, text, labels, registry=self.registry)

        def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(name, text, labels, registry=self.registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, buckets=buckets, registry=self.registry)

        self.requests = counter(
            "lethe_requests_total", "Requests processed, by receipt status", ("status",)
        )
        self.rows_deleted = counter("lethe_rows_deleted_total", "Rows deleted", ("model",))
        self.dead_letters = counter("lethe_dead_letters_total", "Records that could not be read")
        self.changes = counter(
            "lethe_changes_total", "Changes of tables that were read, by outcome", ("outcome",)
        )
        self.unauthenticated = counter(
            "lethe_unauthenticated_total", "Requests without a valid signature by an authorised key"
        )
        self.commits = counter(
            "lethe_commits_total", "Commits: won, or contested by another writer", ("outcome",)
        )
        for outcome in ("won", "contested"):  # a rate needs the series before its first event
            self.commits.labels(outcome)
        self.folds = counter("lethe_folds_total", "Partitions of commits that were read again")
        self.refreshes = counter("lethe_refreshes_total", "Refresh jobs done, by size", ("size",))
        self.refreshes_failed = counter(
            "lethe_refreshes_failed_total", "Refresh jobs that failed; the log says why"
        )
        self.drift_audits_failed = counter(
            "lethe_drift_audits_failed_total",
            "Drift audits in which the live rows contradicted a model's state or error",
        )
        self.refreshes_refused = counter(
            "lethe_refreshes_refused_total",
            "Refresh requests refused because they are too frequent",
        )
        self.refresh_jobs = gauge(
            "lethe_refresh_jobs", "Refresh jobs that were read, by whether they run", ("state",)
        )
        self.refresh_memory = gauge(
            "lethe_refresh_memory_bytes", "Memory that the running refresh jobs need, about"
        )
        self.erasures = counter(
            "lethe_erasures_total",
            "Subject erasures processed, by status of the combined receipt",
            ("status",),
        )
        self.erasures_pending = gauge(
            "lethe_erasures_pending", "Subject erasures that wait for answers of models"
        )
        self.batch_rows = histogram("lethe_batch_rows", "Rows per batch", _ROWS)
        self.step_seconds = histogram(
            "lethe_step_seconds", "Time to compute the step of a batch", _SECONDS
        )
        self.append_seconds = histogram(
            "lethe_append_seconds", "Time to append the commits of a batch to the log", _SECONDS
        )
        self.end_to_end_seconds = histogram(
            "lethe_end_to_end_seconds",
            "Time from the record's timestamp to its published receipt",
            _SECONDS,
        )
        self.refresh_seconds = histogram(
            "lethe_refresh_seconds", "Time of a refresh job, from snapshot to result", _SECONDS
        )
        self.refresh_wait_seconds = histogram(
            "lethe_refresh_wait_seconds", "Time of a refresh job in the log until it begins", _WAITS
        )
        self.error = gauge(
            "lethe_error_relative", "Published relative error; +Inf: unknown", ("model",)
        )
        self.budget = gauge("lethe_error_budget", "Relative error budget", ("model",))
        self.version = gauge("lethe_version", "Newest version", ("model",))
        self.rows_live = gauge("lethe_rows_live", "Live rows", ("model",))
        self.deferred = gauge(
            "lethe_deferred_requests", "Requests that wait for a rebuild", ("model",)
        )
        self.of_models = (self.error, self.budget, self.version, self.rows_live, self.deferred)
        self.lag = gauge("lethe_lag_records", "Records not processed yet", ("partition",))
        self.held = gauge("lethe_held_requests", "Requests waiting to be batched")
        self.halted = gauge("lethe_halted_models", "Models halted until an operator acts")
        self.live = gauge("lethe_worker_live", "1 while /healthz answers 200", ("worker",))
        self.ready = gauge("lethe_worker_ready", "1 while /readyz answers 200", ("worker",))

    def watch(self, worker: str, health: Health) -> None:
        """Show a worker's health, read whenever the metrics are."""
        self.live.labels(worker).set_function(lambda: health.live()[0])
        self.ready.labels(worker).set_function(lambda: health.ready()[0])
