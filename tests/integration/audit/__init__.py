"""The audit, on real servers."""
