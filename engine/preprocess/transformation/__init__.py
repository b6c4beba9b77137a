"""From a table's rows to numbers: once for a generation, and as the live rows would have it.

- `layout`: where columns are in the table, among the features and among the entries
- `categories`: which features the categories of a one-hot column have
- `encoding`: numbers for categories
- `base`: the transformation that a generation begins with, to base units
- `blocks`, `in_passes`, `order_in_passes`: the same of rows that are read in blocks
- `order`: medians, modes, extremes and quartiles, in windows of values
- `sums`: sums over the live rows, from which rows are subtracted
- `statistics`: the live rows' own transformation, and how far it is from the base
- `predicting`: features of rows that are not a model's own
"""
