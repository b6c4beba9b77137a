"""How tight certificates and estimates are, and what a polish costs."""
