"""``lethe demo``: the main job on real data, watched and checked from outside.

`data` has the two data sets, `scenario` the requests, `crew` the real workers in threads,
`subscriber` what a third party sees, `retraining` the independent answer, `conductor` puts them
together, `checks` says whether the promises held, `live`, `report` and `plot` show it.
"""
