"""Models on their way to where they are served: files, and registries that others read.

- `estimator`: a published version as a plain estimator of scikit-learn
- `files`: the formats of `lethe export`

May import `consumers.subscriber` and the packages below it.
"""
