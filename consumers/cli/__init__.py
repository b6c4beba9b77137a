"""The command ``lethe``, one file a command. May import everything but `consumers.demo`.

- `main`: the group of commands, exit codes, and the place where an error becomes a line;
  it alone names `consumers.demo`
- `terminal`: what commands share: options, output, signals
- `requests`: what some of them send to the log

Models:

- `register`, `unregister`, `recover`: begin a model, end it, continue it after a loss
- `registering`: what `register` does
- `preprocess`: what it does with --preprocess, and proposes without
- `refresh`: schedule refreshes
- `status`, `versions`, `export`: what there is
- `mirror`: a registry that has the newest versions
- `sample`: data to try the commands with

Deletions:

- `delete`: of rows, or of a subject
- `change`: insert or correct the rows of a file
- `reconcile`: delete the rows that a table no longer has
- `erase`, `erasures`: a person, from every model; what became of it
- `receipt`: what became of a request
- `work`: the workers
- `serve`: the HTTP API

Checks and keys:

- `check`: the installation
- `dead_letters`: requests that could not be read
- `verify`, `audit`: a model against a refit, a model's history
- `summary`: standard errors, tests and intervals of a linear model
- `disclosure`: what versions have told of rows
- `key`: signing keys and seal secrets
"""
