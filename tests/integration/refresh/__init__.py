"""Refresh jobs, from the order to the swap."""
