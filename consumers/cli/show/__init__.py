"""Commands that show what there is. Imports, of `cli`, all but `check`.

- `status`, `versions`: models, and their versions
- `summary`: standard errors, tests and intervals of a linear model
- `disclosure`: what versions have told of rows
- `receipt`: what became of a request
- `erasures`: what became of erasures
- `dead_letters`: requests that could not be read; replays them
"""
