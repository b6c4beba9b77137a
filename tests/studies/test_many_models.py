"""Many models on one worker, at a small size: no request is lost or counted twice by kill -9."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.servers import ROOT


@pytest.mark.slow
@pytest.mark.redis
@pytest.mark.timeout(600)
def test_workers_that_are_killed_are_replaced() -> None:
    """Given 40 models, a worker is killed beside another, and one that is alone."""
    command = [sys.executable, "scripts/many_models.py", "--models", "40"]
    command += ["--rate", "40", "--seconds", "2", "--kills", "1"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 things wrong" in done.stdout
    assert "another is started" in done.stdout
