"""The log in Kafka, using kafka-python 3.0."""
