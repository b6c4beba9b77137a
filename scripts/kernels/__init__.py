"""What the engine's deletions, fits and audits cost, without servers."""
