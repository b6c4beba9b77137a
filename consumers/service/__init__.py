"""What every process needs. May import `consumers.contract`, `consumers.log` and the engine.

- `configuration`: settings, credentials, keys
- `telemetry`: logs, health, metrics, traces

Connections:

- `connect`: from settings to a store, a log and workers; the only module that knows them all
- `kafka_client`: the log in Kafka, as the settings describe it
- `embedded_valkey`: the server that runs if no Redis is named, and who uses it
- `valkey_server`: the process of that server
- `client`: sends requests, and waits for what answers them
- `extras`: one line for an optional extra that is not installed

Running:

- `loop`: the loop of a worker, which waits for servers that are away
- `topic_watch`: notices topics that were made again, or have lost what was read of them
- `keepalive`: keeps a consumer in its group while its worker reads something else
"""
