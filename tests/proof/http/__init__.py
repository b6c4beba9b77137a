"""The HTTP API under generated requests: whatever is sent, the server answers for itself."""
