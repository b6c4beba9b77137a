"""``lethe delete --sign`` and ``LETHE_REQUEST_KEYS``: only signed requests are decided."""

from __future__ import annotations

from pathlib import Path

import pytest

from lethe.consumers.contract.signatures import new_key_file
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.command import Lethe
from tests.support.training import write

pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_signed_requests")]


def test_only_signed_requests_are_decided(tmp_path: Path) -> None:
    data = write(tmp_path / "rows.parquet", logistic=False)
    secret, allowed = tmp_path / "key.pem", tmp_path / "keys"
    allowed.write_text(f"{new_key_file(secret).public_text} m  # the portal\n")
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Lethe(server.data_dir, LETHE_REQUEST_KEYS=str(allowed))
        lethe("register", "m", "--data", str(data), "--id", "id", "--target", "y", "--subject",
              "household", "--kind", "linear", "--ridge", "1", "--error-budget", "100")  # fmt: skip
        lethe("delete", "m", "--row", "u1")
        lethe("delete", "m", "--subject", "h1", "--sign", str(secret))
        done = lethe("work", "--until-idle")
        lethe.environment["LETHE_REQUEST_KEYS"] = str(tmp_path / "nowhere")
        refused = lethe("work", "--until-idle", code=2)
        secret.chmod(0o644)
        open_key = lethe("delete", "m", "--row", "u1", "--sign", str(secret), code=2)

    assert "idle; requests: 1 APPLIED" in done.out
    assert "action=request_keys" in done.err
    assert "UNAUTHENTICATED" in done.err
    assert "cannot be read" in refused.err
    assert "others can read this private key" in open_key.err
