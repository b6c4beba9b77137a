"""Linear models to the last digit: exact sums, and the correctly rounded minimiser (docs/exact.md).

`digits` has whole numbers of any length, as arrays. `sums` adds rows up, `rows` has those that came
or went since, `rounding` solves the normal equations, and `running` keeps the solution up to date.
`kept` is what a store has of the sums.
"""
