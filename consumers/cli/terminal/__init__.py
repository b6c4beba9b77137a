"""How a command meets its user. Imports nothing else of `consumers.cli`.

- `options`: options, and the types of their values
- `output`: text or one JSON document
- `stopping`: signals
"""
