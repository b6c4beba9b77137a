"""What this process is told: settings, and the credentials and keys that they name.

Imports nothing else of `consumers.service`.

- `settings`: flags, ``LETHE_*`` and defaults
- `credentials`: what they say about signing on to the store and to Kafka
- `signing_keys`: which keys this process signs with, and which it trusts
- `toml_file`: a TOML file that somebody wrote, within a limit
- `durations`: spans of time as people write them
"""
