"""Subject erasures, without servers."""
