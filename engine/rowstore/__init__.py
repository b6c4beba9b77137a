"""Rows of a model in files: buckets of a few thousand rows, on a disk or in object storage.

- `files`: where files lie, and how one is written so that it is there after a crash
- `keys`: in what order rows lie: by keyed hashes of their subjects and ids
- `bucket`: some rows as one Parquet file
- `manifest`: which buckets there are, by their digests
- `writer`: sorts the rows of a registration into buckets, in bounded memory
- `passes`: the blocks of a pass over all rows, and what is computed of one
- `buckets`: finds rows and whose they are, reads them all, and rewrites buckets without some

A file is never changed, and its name is the SHA-256 of its bytes. The digest of the manifest, the
*root*, names the rows of a model altogether: nothing else is ever read.
"""
