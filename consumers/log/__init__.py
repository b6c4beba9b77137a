"""Logs: Kafka and Redis Streams behind one small interface (`consumers.log.base`)."""
