"""The paper's experiments, one table in each module; `make paper` runs them, see docs/paper.md."""
