"""Mathematics and state of deletion."""
