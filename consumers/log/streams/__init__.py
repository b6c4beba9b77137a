"""The log of single-node mode: Redis Streams."""
