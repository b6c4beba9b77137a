"""Traces and run events of real workers."""
