"""The studies of scripts/, at small sizes."""
