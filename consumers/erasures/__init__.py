"""A person erased from every model: requests, their fan-out, and the combined receipt.

May import `registration` and everything below it.
"""
