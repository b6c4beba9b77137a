"""Preprocessing in a library model; the service has `engine.preprocess.live` instead.

- `state`: the state of a fitted model, and what is read from it
- `fitted`: its fit, changes and refreshes
- `pipelines`: scikit-learn's pipelines read, and built
"""
