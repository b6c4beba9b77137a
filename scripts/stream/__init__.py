"""The stream study: what happens to a model over thousands of deletions, and what it costs."""
