"""What the console shows, in one SQLite file that follows the topics and can be rebuilt from them.

- `schema`: the tables, and the file itself.
- `records`: what one record of a topic adds.
- `store_facts`: what only the store knows of a model: a pending refresh, a halt, lost rows.
- `follower`: reads topics and store, and writes.
- `published`: receipts and versions, for the HTTP API.
- `requests`, `erasures`, `models`: queries, each of one page at most.

May import `consumers.deletions` and the packages below it.
"""
