"""Change data capture with real logs and stores."""
