"""Leaving rows out of a fitted model: the step, the stream of steps, the methods that publish."""
