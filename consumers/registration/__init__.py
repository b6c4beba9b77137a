"""Registers, replaces and unregisters models, and recovers them after a loss.

May import `consumers.versions` and the packages below it.
"""
