"""What every process needs. May import `consumers.contract`, `consumers.log` and the engine.

Settings and connections:

- `settings`: flags, ``LETHE_*`` and defaults
- `credentials`: what they say about signing on to the store and to Kafka
- `signing_keys`: which keys this process signs with, and which it trusts
- `connect`: from settings to a store, a log and workers; the only module that knows them all
- `kafka_client`: the log in Kafka, by the client that the settings name
- `embedded_valkey`: the server that runs if no Redis is named, and who uses it
- `valkey_server`: the process of that server
- `extras`: one line for an optional extra that is not installed
- `durations`: spans of time as people write them

Running and watching:

- `loop`: the loop of a worker, which waits for servers that are away
- `keepalive`: keeps a consumer in its group while its worker reads something else
- `steps`: the named steps at which crash tests kill a process
- `logs`: structured logs
- `progress`: how long work reports how far it is
- `health`: whether a worker lives and gets on
- `metrics`: Prometheus metrics
- `tracing`: traces of the deletion worker, for OpenTelemetry (an extra)
- `lineage`: run events of refreshes, for OpenLineage (an extra)
- `http`: health and metrics on a loopback port
"""
