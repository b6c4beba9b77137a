"""``lethe serve``: the HTTP API, until SIGTERM."""

from __future__ import annotations

import signal
import sys
import threading

import click

from lethe.consumers.cli.options import global_options
from lethe.consumers.cli.output import prepare
from lethe.consumers.cli.stopping import stopped_by
from lethe.consumers.service.connect import open_runtime
from lethe.consumers.service.logs import logger
from lethe.engine.errors import InvalidData

LOOPBACK = "127.0.0.1"
PORT = 8321


@click.command(short_help="Serve the HTTP API until SIGTERM.")
@click.option("--host", default=LOOPBACK, show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True,
    help="Port to listen on; 0 for a free one.",
)  # fmt: skip
@global_options
@click.pass_context
def serve(ctx: click.Context, /, *, host: str, port: int) -> int:
    """Serve the HTTP API: requests in, receipts and versions out.

    It writes requests to the log and reads what the workers publish: run `lethe work` beside it. On
    SIGTERM or SIGINT it answers the requests under way and exits.

    \b
    Examples:
      lethe serve
      lethe serve --port 8080
    """  # noqa: D301 - click looks for the character
    settings, out = prepare(ctx)
    try:
        from lethe.consumers.server import app, services, serving  # noqa: PLC0415 - an extra
        from lethe.consumers.server.console import install  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "starlette", "uvicorn", "jinja2", "python_multipart"):
            raise
        raise InvalidData(
            f"lethe serve needs {error.name}, which the extra `server` installs: "
            "pip install 'lethe-engine[server]'"
        ) from None
    stop = threading.Event()
    with (
        stopped_by(stop, signal.SIGTERM, signal.SIGINT),
        open_runtime(settings) as runtime,
        services.open_services(runtime) as opened,
        install.open_console(runtime, opened) as console,
    ):

        def ready(bound: int) -> None:
            logger("server").info("serving", action="start", on=runtime.log.name, port=bound)
            out.document({"url": f"http://{host}:{bound}"})
            out.line(f"serving on http://{host}:{bound}; the console is at /console/")
            sys.stdout.flush()

        application = app.create_app(opened)
        install.install(application, console)
        serving.serve(application, host, port, ready)
    return 0
