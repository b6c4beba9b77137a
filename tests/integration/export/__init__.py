"""Models on their way to where they are served, from real workers."""
