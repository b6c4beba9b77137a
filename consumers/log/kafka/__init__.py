"""The log in Kafka: what its two clients share. Each is a package of its own, imported if used."""
