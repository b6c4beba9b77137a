"""What the program is made of, and whether an advisory names a part of it."""
