"""The subscriber, on a real Kafka."""
