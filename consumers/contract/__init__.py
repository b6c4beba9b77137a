"""What others rely on: topics, events, signatures, the chain of versions.

May import `consumers.log` and the engine.
"""
