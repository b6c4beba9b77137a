"""What tests share: servers, data families, oracles, a platform, and what must hold of it."""
