"""What ``make capacity`` measures, simulates and prints; see docs/capacity.md."""
