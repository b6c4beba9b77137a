"""What an auditor needs: a history read and judged, one request's story, exported files.

Everything here only reads, and believes nothing because it stands there.
"""
