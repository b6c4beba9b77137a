"""The measurements of ``scripts/kernels.py``, a module for each number."""
