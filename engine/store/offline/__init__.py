"""Whole models at a time, for registration, refreshes and audits; no deletion waits for it.

What is staged here lies beside the live state until a commit names it. May import all of
`engine.store`.

- `snapshot`: all live rows, or a new sample of them
- `live_rows`: the live rows of a version, in blocks where they are in files
- `in_files`: a generation of rows in files, fitted in passes
- `touched`: the rows that commits have touched since a generation became live
- `staging`: a generation or a data set written beside the live one, and read back
- `catch_up`: such a generation and what became of rows while it was made
- `jobs`: results of refresh jobs
- `predecessor`: the model that a --replace replaces, without trusting its state
"""
