"""``lethe mirror``: the newest version of each model in another system's registry."""

from __future__ import annotations

import signal

import click

from lethe.consumers.cli.terminal.options import global_options
from lethe.consumers.cli.terminal.output import counted, prepare
from lethe.consumers.cli.terminal.stopping import stopped_by
from lethe.consumers.export.mirror import Mirror
from lethe.consumers.export.mlflow_registry import MlflowRegistry
from lethe.consumers.service.connect import open_runtime
from lethe.consumers.subscriber.subscriber import ModelSubscriber
from lethe.engine.store.membership import registered_models


@click.command(short_help="Keep a model registry at the newest versions, and delete older ones.")
@click.argument("registry", metavar="REGISTRY", type=click.Choice(["mlflow"]))
@click.option(
    "--model", "models", multiple=True, metavar="MODEL",
    help="Mirror this model; may be repeated. Default: every registered model.",
)  # fmt: skip
@click.option(
    "--tracking-uri", metavar="URI",
    help="Where MLflow is. Default: MLFLOW_TRACKING_URI, as MLflow reads it.",
)  # fmt: skip
@click.option(
    "--alias", default="champion", show_default=True, metavar="NAME",
    help="The alias that the newest version gets.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Mirror what is newest now, and return.")
@global_options
@click.pass_context
def mirror(
    ctx: click.Context,
    /,
    *,
    registry: str,
    models: tuple[str, ...],
    tracking_uri: str | None,
    alias: str,
    once: bool,
) -> None:
    """Register each new version in REGISTRY, move an alias to it, delete the versions before.

    REGISTRY is mlflow.

    A superseded version still holds the influence of rows that were deleted, so it is deleted with
    its artifacts, but only after the new one stands. Versions that Lethe did not register are never
    touched. While the registry is down the command waits, and deletes nothing. It may be killed at
    any time: started again, it goes on where it was. Needs the extra mlflow.

    \b
    Examples:
      lethe mirror mlflow --tracking-uri http://localhost:5000
      lethe mirror mlflow --model churn --once
    """  # noqa: D301 - click looks for the character
    del registry  # there is one
    settings, out = prepare(ctx)
    with open_runtime(settings) as runtime:
        client = runtime.store().client
        mirroring = Mirror(
            ModelSubscriber(runtime.log, client, runtime.trusted()),
            MlflowRegistry(tracking_uri, alias=alias),
            lambda: list(models) or registered_models(client),
        )
        if once:
            count = mirroring.run_once()
            out.document({"state": "mirrored", "models": count})
            out.line(f"mirrored {counted(count, 'model')}")
            return
        with stopped_by(mirroring.stop, signal.SIGTERM, signal.SIGINT):
            mirroring.run()
    out.document({"state": "stopped"})
    out.line("stopped")
