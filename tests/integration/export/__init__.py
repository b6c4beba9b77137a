"""Models on their way to where they are served, from a real log and store."""
