"""The paper's experiments; `make paper` runs them, see docs/paper.md."""
