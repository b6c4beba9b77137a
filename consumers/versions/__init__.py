"""From one version of a model to the next: state, certificate, and any refresh it schedules.

May import `consumers.commits` and what stands below.
"""
