"""What tests of the whole way share: a platform on real servers, and what must hold of it."""
