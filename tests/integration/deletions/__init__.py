"""What a deletion comes to, from its request to its version, on real servers."""
