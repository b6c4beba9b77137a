"""What the engine's deletions cost, without servers."""
