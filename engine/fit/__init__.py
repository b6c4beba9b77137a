"""From rows to a fitted model: objective, minimiser, factored Hessian, precomputation."""
