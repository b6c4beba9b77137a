"""The second battery: published bounds and estimates against an 80-bit oracle.

It shares nothing with the engine nor with `tests.support.oracles`: hostile families (`families`,
`hard_labels`, and `held_out`, on which nobody tunes), an oracle written from the mathematics
(`oracle`), streams of states (`states`), and what they come to (`figures`). `make bounds` runs all
of it, `tests/proof/properties/test_bounds.py` a small part.
"""
