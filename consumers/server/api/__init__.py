"""The routes below ``/v1``, one module for each kind of resource."""
