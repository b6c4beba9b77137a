"""The log in Kafka, using kafka-python 3.0; docs/kafka-clients.md says why that client.

- `log`: the log itself, and its topics
- `producer`: sending, idempotent
- `consumer`: reading as a member of a group
- `reader`: reading without a group
- `cluster`: queries about topics and offsets, many partitions in one round trip
- `connection`: the network client beneath them, and why a broker refused it
- `repairs`: what is repaired in kafka-python
- `versions`: the repairs with the versions of kafka-python that they concern; a check at start
- `batches`: a limit on what a batch unpacks to
- `assignor`: how the members of a group share the partitions of several topics
- `server`: where Kafka is, and what is said when it cannot be used
- `settings`: sizes, times, and the settings that keep requests safe
"""
