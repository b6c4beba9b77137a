"""The HTTP API on real servers."""
