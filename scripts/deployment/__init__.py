"""What scripts/manifests.py writes for a platform team: a dashboard, and Strimzi's resources."""
