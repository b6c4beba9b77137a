"""The log in Kafka, using confluent-kafka (librdkafka): the second client, an optional extra.

Nothing outside this package imports ``confluent_kafka``, and nothing imports this package unless
``LETHE_KAFKA_CLIENT=confluent``.
"""
