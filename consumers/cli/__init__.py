"""The command ``lethe``, one file a command. May import everything but `consumers.demo`.

- `main`: the group of commands, exit codes, and the place where an error becomes a line;
  it alone names `consumers.demo`
- `send`: requests: deletions, erasures, new and corrected rows
- `show`: what there is, and what became of requests
- `check`: the installation, and what was published
- `run`: processes
- `maintain`: models from their beginning to their end, keys
- `terminal`: what commands share: options, output, signals
"""
