"""The store: damage, erasure, row keys."""
