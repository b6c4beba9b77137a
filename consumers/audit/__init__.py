"""What an auditor needs: checking a history, reporting on one request, and exported files.

Everything here only reads, and takes nothing that it reads on trust.
"""
