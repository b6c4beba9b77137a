"""Exit 0 when the worker or server in this container says that it is healthy, else 1.

healthcheck.py [PORT]
"""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request


def healthy(port: int) -> bool:
    """Ask ``/healthz`` on loopback; a worker that is stuck answers 503."""
    # A proxy named in the environment must not be asked for what lies on loopback.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"http://127.0.0.1:{port}/healthz", timeout=3.0) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


if __name__ == "__main__":
    port = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("LETHE_HTTP_PORT", "9464")
    sys.exit(0 if healthy(int(port)) else 1)
