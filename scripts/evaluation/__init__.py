"""Attacks on what a deletion leaves, and published methods beside this project's."""
