"""From one version of a model to the next: its state, its certificate, the refresh it orders.

May import `consumers.commits` and what stands below.
"""
