"""What a user asks for, and a table's rows before any transformation.

May import the rest of the engine; nothing of `engine.preprocess` outside of this package.

- `derived`: what a column is computed from, row by row
- `sources`: what that is made of, and which columns of a table it reads
- `expression_text`: the same from text
- `evaluating`: its values
- `columns`: what is done to each column
- `by_name`: which of them a model has, and which columns a table has to have for these
- `settings`: what a model was asked for, and what of it cannot be
- `values`: the values of one column: numbers, days or categories
- `spelling`: the category that a value of a file or a message is, however it is written there
- `table`: tables, read by name; the rows of a model
- `as_given`: rows of any type, copied, taken and stacked
- `frozen`: a transformer that keeps what it was trained on
"""
