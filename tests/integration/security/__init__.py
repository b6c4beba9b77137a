"""Servers set up with TLS, passwords and rights, and what each role may do with them."""
