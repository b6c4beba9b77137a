"""Model state in Redis or Valkey: layout (`keys`), bytes (`codec`), head, commit, store."""
