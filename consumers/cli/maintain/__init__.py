"""Commands for models from beginning to end, and for keys. Import, of `cli`, `terminal`.

- `sample`: data to try the commands with
- `register`, `registering`: begin a model: its options, its work
- `planning`: what it says with --dry-run
- `class_weights`: what it does with --class-weight
- `estimator`: what it does with --from
- `preprocess`: what it does with --preprocess, and proposes without
- `unregister`, `recover`: end a model, continue it after a loss
- `refresh`: schedule refreshes
- `export`: the newest parameters as a file
- `key`: signing keys and seal secrets
"""
