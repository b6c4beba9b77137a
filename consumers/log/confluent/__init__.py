"""Kafka as a log, on confluent-kafka (librdkafka): the second client, an extra of the package.

Nothing outside of this package imports ``confluent_kafka``, and nothing imports this package
unless ``LETHE_KAFKA_CLIENT=confluent``.
"""
