"""Seeded simulation: the product's workers on a log in memory and a store, with faults.

One seed is one run, and the same seed is the same run: ``make simulate SEED=4711`` repeats it.
"""
