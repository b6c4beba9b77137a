"""`make chaos`: the real product on real servers, with real faults, and a checker of every promise.

docs/chaos.md says what it does. `tests.proof.chaos.checker` judges; it knows nothing of how it was
run.
"""
