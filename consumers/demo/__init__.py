"""``lethe demo``: the main job on real data, observed and checked from outside.

`scenario` has the models and the requests, `run` starts a server and the workers and sends them,
`observer` reads what is published, and `retraining` is the independent reference. `checks` judges
the promises; `view` shows the run as it happens, `report` and `plot` its result.
"""
