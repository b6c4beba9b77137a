"""``lethe demo``: the main job on real data, observed and checked from outside.

`data` has the two data sets, `scenario` the requests, `crew` the real workers in threads,
`subscriber` the view of a third party, and `retraining` the independent reference. `conductor` runs
them together, `checks` verifies the promises, and `live`, `report` and `plot` show the result.
"""
