"""Preprocessing in a library model; the service has `engine.preprocess.live` instead.

- `rounded`: a linear model of few columns, right to the last bit
- `state`: the state of a fitted model, and what is read from it
- `fitted`: its fit, changes and refreshes
- `softmax`: those of classes that share one softmax
- `computing`: scikit-learn's transformers for columns that are computed
- `pipelines`: scikit-learn's pipelines read, and built
"""

from typing import TypeAlias

from lethe.engine.preprocess.library.fitted import PreparedFit
from lethe.engine.preprocess.library.rounded import RoundedPipeline

PreparedModel: TypeAlias = PreparedFit | RoundedPipeline
"""The fitted state of a model with preprocessing."""
