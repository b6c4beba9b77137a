"""The last layer: heads on features that stay as they are, and what deletion leaves in those."""
