"""What listens, works and publishes."""
