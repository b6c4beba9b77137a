"""The public contract: topics, events, signatures, the chain of versions.

May import `consumers.log` and the engine.
"""
