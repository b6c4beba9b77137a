"""Training rows from a file: Parquet or CSV, checked value by value.

May import `consumers.registration` and the engine.
"""
