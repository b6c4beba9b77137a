"""What a process says of itself (docs/telemetry.md, docs/operations.md).

Imports nothing else of `consumers.service`.

- `steps`: the named steps of the workers: spans are named after them, crash tests kill there
- `logs`: structured logs
- `progress`: how long work reports how far it is
- `health`: whether a worker lives and gets on
- `metrics`: Prometheus metrics
- `http`: health and metrics on a loopback port
- `tracing`: traces of the deletion worker, for OpenTelemetry (an extra)
- `lineage`: run events of refreshes, for OpenLineage (an extra)
"""
