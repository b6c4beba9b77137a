"""Subject erasures through all workers."""
