"""The logs: memory, Redis Streams and Kafka do the same."""
