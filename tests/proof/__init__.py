"""Programs that know nothing of the product, and must agree with it."""
