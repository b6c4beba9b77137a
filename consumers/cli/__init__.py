"""The command ``lethe``. May import everything but `consumers.demo`, which `main` alone names.

- `main`: the group of commands, exit codes, and the place where an error becomes a line

Models:

- `register`, `unregister`, `recover`: begin a model, end it, continue it after a loss
- `preprocess`: what `register` does with --preprocess, and proposes without
- `refresh`: schedule refreshes
- `status`, `versions`, `export`: what there is
- `mirror`: a registry that has the newest versions
- `sample`: data to try the commands with

Deletions:

- `delete`, `request`: the options of a request; making it, sending it, waiting for its receipt
- `change`: insert or correct the rows of a file
- `reconcile`: delete the rows that a table no longer has
- `erase`, `erasure`: the options of an erasure of a person; sending it, its combined receipt
- `receipt`: what became of one
- `work`: the workers
- `serve`: the HTTP API

Checks and keys:

- `check`: the installation
- `verify`, `audit`: a model against a refit, a model's history
- `key`: signing keys and seal secrets

What commands share:

- `options`: options, and the types of their values
- `output`: text or one JSON document
- `registrar`: the writer of commits behind `register`, `unregister` and `recover`
- `stopping`: signals
"""
