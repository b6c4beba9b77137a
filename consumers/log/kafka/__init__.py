"""Kafka as a log, using kafka-python."""
