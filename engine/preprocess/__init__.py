"""Preprocessing inside a model: its statistics are trained on rows, and forget them as well.

- `input`: what a user writes, and the rows of a table as they are given
- `transformation`: a table's rows in base units, and the statistics of the live ones
- `rounded`: a linear pipeline to the last bit, from exact sums over raw rows
- `library`: a fitted library model, and scikit-learn's pipelines
- `refitted`: transformers that are fitted anew at every change instead

The live answer, between those two and `library`:

- `movement`: brings the parameters to the live statistics' answer
- `answer`: a generation, and the live answer beside its stream
- `published`: what is published, and how far it may be from a refitted pipeline
- `remainder`: a proved bound of a logistic model's error, from sums alone
- `extents`: what a rebuild measures for it
- `estimate`: a logistic model's error, estimated from a sample of rows
- `error`: the published error, of either kind
- `live`: a live pipeline as a value, which a service keeps
"""
