"""Every decoder of untrusted or stored bytes, fed with what nobody should send. docs/fuzzing.md."""
