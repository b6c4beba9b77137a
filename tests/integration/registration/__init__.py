"""Registration, --replace and recovery."""
