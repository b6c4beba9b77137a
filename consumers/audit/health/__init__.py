"""What `lethe check` checks. Nothing here writes. Imports nothing else of `consumers.audit`.

- `checks`: the installation and the servers
- `commits`: topics, keys and cursors of the commits
- `workers`: who reads what waits
- `topics`: whether topics are those that the store knows
- `models`: what is stored and published of each model
"""
