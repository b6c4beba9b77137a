"""Attacks on a small platform: what an attacker does from each place where one may stand.

`attack` says what an attack is, `world` what is attacked, `judge` what must hold afterwards. The
other modules hold the attacks, one module for each place. docs/attacks.md has a line for each.
"""
