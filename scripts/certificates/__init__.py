"""How tight certificates and estimates are."""
