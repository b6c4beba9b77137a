"""Mutants: the product with one guard taken out, which the simulation or a test must catch."""
