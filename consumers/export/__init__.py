"""Models on their way to where they are served: files, and registries that others read.

- `estimator`: a published version as a plain estimator of scikit-learn
- `files`: the formats of `lethe export`
- `mirror`: the newest version of each model in a registry, and none of those before it
- `mlflow_registry`: such a registry in MLflow

May import `consumers.subscriber` and the packages below it.
"""
