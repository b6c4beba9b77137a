"""Kafka as a log, by kafka-python."""
