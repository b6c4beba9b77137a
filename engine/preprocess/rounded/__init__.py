"""Linear pipelines to the last digit (docs/exact.md, Pipelines).

- `raw`: rows as they enter exact sums, before anything has been learnt from them
- `statistics`: the live rows' means, variances and encodings, as fractions
- `minimiser`: the parameters of the pipeline's last step, correctly rounded
- `solution`: all of this for rows that come and go
"""
