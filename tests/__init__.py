"""Tests: unit (no server), integration, acceptance, studies, proof; support has their helpers."""
