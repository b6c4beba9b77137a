"""Published methods of deletion, re-implemented small: one module each."""
