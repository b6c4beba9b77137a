"""Tests; real servers come from tests/servers.py."""
