"""What every study has in common: records and results, tables and pages, timing, progress.

A study measures; the harness times its calls, resumes its run, and writes what it found.
"""
