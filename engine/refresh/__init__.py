"""The four kinds of refresh, and which one is due."""
