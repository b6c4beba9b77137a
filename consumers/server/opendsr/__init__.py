"""OpenDSR, version 1: a data controller asks for a person's erasure, by identities that it knows.

- `opened`: all of it on an application
- `configuration`: which identities map to which subjects, and which callbacks are allowed
- `routes`: discovery, requests, their status, cancelling
- `record`: what is kept of a request until its last callback
- `desk`: sends requests when they are due, looks for their outcomes
- `notifier`: makes callbacks in the background, several at once
- `callbacks`: a POST to an address that is allowed, and to no other
- `signature`: what an answer is signed with, and the certificate of that key
"""
