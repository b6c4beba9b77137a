"""Commands that check. May import everything of `cli`.

- `check`: the installation
- `verify`: a model against a refit
- `audit`: a model's history
"""
