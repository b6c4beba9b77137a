"""Logs: Kafka, Redis Streams and memory behind one small interface (`consumers.log.base`)."""
