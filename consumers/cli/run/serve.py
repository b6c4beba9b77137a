"""``lethe serve``: the HTTP API and the console, until SIGTERM."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lethe.consumers.cli.terminal.options import Flags, global_options
from lethe.consumers.cli.terminal.output import prepare
from lethe.consumers.cli.terminal.stopping import stopped_by
from lethe.consumers.service.connect import Runtime, open_runtime
from lethe.consumers.service.extras import extra
from lethe.consumers.service.loop import collect_rarely
from lethe.consumers.service.telemetry.logs import logger

if TYPE_CHECKING:
    from lethe.consumers.server.guard import Access


@click.command(short_help="Serve the HTTP API and the console until SIGTERM.")
@click.option(
    "--host", metavar="ADDRESS",
    help="Address to listen on. Default: LETHE_SERVER_HOST, or 127.0.0.1; any other needs --keys.",
)  # fmt: skip
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="PORT",
    help="Port to listen on; 0 for a free one. Default: LETHE_SERVER_PORT, or 8321.",
)  # fmt: skip
@click.option(
    "--keys", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Keys that may call (`lethe key issue FILE`). Default: LETHE_SERVER_KEYS, or anybody on "
    "this machine.",
)  # fmt: skip
@click.option(
    "--opendsr", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Offer OpenDSR, as this TOML file configures it. Default: LETHE_OPENDSR, or not at all.",
)  # fmt: skip
@global_options
@click.pass_context
def serve(ctx: click.Context, /, **options: Any) -> int:
    """Serve the HTTP API and the console: requests in, receipts and versions out (docs/http.md).

    It writes requests to the log and reads what workers publish: run `lethe work` beside it. On
    SIGTERM or SIGINT it answers the requests under way and exits.

    \b
    Examples:
      lethe serve
      lethe key issue api.keys --name crm
      lethe serve --host 0.0.0.0 --keys api.keys
    """  # noqa: D301 - click looks for the character
    named = {f"server_{name}": options[name] for name in ("host", "port", "keys")}
    ctx.ensure_object(Flags).settings |= named | {"opendsr": options["opendsr"]}
    settings, out = prepare(ctx)
    check_extra("lethe serve")
    from lethe.consumers.server import access, serving  # noqa: PLC0415 - an extra

    admitted = access.access_of(settings)
    stop = threading.Event()

    def ready(url: str) -> None:
        out.document({"url": url})
        out.line(f"serving on {url}; the console is at {url}/console/")
        sys.stdout.flush()

    with (
        stopped_by(stop, signal.SIGTERM, signal.SIGINT),
        serving.listen(settings.server_host, settings.server_port) as listening,
        open_runtime(settings) as runtime,
    ):
        collect_rarely()  # a search of everything holds up every request for 70 ms
        serve_runtime(runtime, listening, admitted, stop, ready)
    out.line("stopped")
    return 0


def check_extra(what: str) -> None:
    """Refuse what needs the server where it is not installed.

    Raises
    ------
    InvalidData
        The extra is missing.
    """
    with extra("server", what):
        for module in ("assembly", "serving"):  # not needed for --help
            import_module(f"lethe.consumers.server.{module}")


def serve_runtime(
    runtime: Runtime,
    listening: socket.socket,
    admitted: Access,
    stop: threading.Event,
    ready: Callable[[str], None],
) -> None:
    """Serve the API and the console on the servers of a runtime, until SIGTERM or SIGINT.

    ``ready`` is called with the address once it is about to answer. Raises what
    `assembly.application_on` raises.
    """
    from lethe.consumers.server import (  # noqa: PLC0415 - an extra
        access,
        assembly,
        metrics,
        serving,
    )

    settings = runtime.settings
    certificate = access.certificate_of(settings)
    with assembly.application_on(runtime, admitted, stop) as application:
        port = listening.getsockname()[1]
        scheme = "http" if certificate is None else "https"
        host = settings.server_host
        logger("server").info("serving", action="start", on=runtime.log.name, port=port)
        ready(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}")
        measured = metrics.ServerMetrics()
        application.add_middleware(metrics.Measured, metrics=measured)
        with metrics.exported(settings, measured):
            serving.server_of(application, stop, certificate).run([listening])
