"""Preprocessing inside a model: its statistics are trained on rows, and forget them as well.

`columns` is what a user writes; `table` and `values` read rows; `base` transforms them once for a
generation; `sums` and `statistics` follow the live rows; `movement` brings the parameters to the
live statistics' answer; `published` says how far that may be from a refitted pipeline.
"""
