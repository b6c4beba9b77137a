"""Commands that run until they are stopped. Import, of `cli`, `main` and `terminal`.

- `work`: the workers
- `serve`: the HTTP API and the console
- `mirror`: a registry that has the newest versions
"""
