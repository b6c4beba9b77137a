"""What `scripts/certificates.py` measures: certificates, sentinels, polishes."""
