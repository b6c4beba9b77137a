"""What ``make bench`` measures, one subject in each module; see docs/bench.md."""
