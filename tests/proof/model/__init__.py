"""The commit protocol as explicit-state models, and the checker that walks through them.

`python -m tests.proof.model` prints what holds and what catches each rule taken away; docs/model.md
says what is modelled and what is not.
"""
