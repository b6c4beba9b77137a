"""``lethe verify``."""

from __future__ import annotations

from typing import Any

import click

from lethe.consumers.audit.verify import Verification, verify as verify_model
from lethe.consumers.cli.options import global_options
from lethe.consumers.cli.output import error_number, number, prepare
from lethe.consumers.service.connect import open_runtime
from lethe.consumers.versions.certificates import certificate_of


@click.command(short_help="Compare a model with an independent refit.")
@click.argument("model")
@global_options
@click.pass_context
def verify(ctx: click.Context, /, *, model: str) -> int:
    """Retrain MODEL from scratch on its live rows and compare.

    The refit shares no code with the engine: QR of the augmented system for linear models,
    scipy.optimize for logistic ones, and its own remaining error is measured and allowed for.
    Prints the distance, the published bound and the budget; exit code 1 if the distance exceeds
    the bound. When the newest version carries no bound, the model is audited first: its gradient
    over all live rows is measured and turned into a bound.

    \b
    Example:
      lethe verify churn
    """  # noqa: D301 - click looks for the character
    settings, out = prepare(ctx)
    with open_runtime(settings) as runtime, out.progress() as report:
        report("retraining on the live rows", 0, 0)
        found = verify_model(runtime.store(), model)
    out.document(_document(found))
    error = found.state.meta.error
    out.facts(
        {
            "model": f"{model}, version {found.version}, {found.rows_live} live rows",
            "refit": f"{found.method}; itself within {number(found.residual)}",
            "distance": f"{number(found.distance)} ({number(found.relative)} relative)",
            "bound": f"{number(found.bound)} ({_origin(found)})",
            "budget": f"{number(error.budget)} relative; published error "
            f"{error_number(error.relative)}",
        }
    )
    said = "verified: the distance is within" if found.holds else "FAILED: the distance exceeds"
    out.line(f"{said} the bound")
    certificate = certificate_of(found.state)
    if certificate is not None and found.gradient is not None:
        verdict = "within" if found.certified else "FAILED: not within"
        out.line(
            f"certificate: a gradient residual of {number(found.gradient)} is {verdict} the "
            f"{number(certificate.spent)} that are spent of {number(certificate.budget)}"
        )
    return 0 if found.holds and found.certified else 1


def _origin(found: Verification) -> str:
    if found.bound_from == "version":
        return f"published: {found.argument}"
    return f"audited now: {found.argument}"


def _document(found: Verification) -> dict[str, Any]:
    error, certificate = found.state.meta.error, certificate_of(found.state)
    return {
        "model_id": found.state.model_id,
        "version": found.version,
        "digest": found.state.digest,
        "rows_live": found.rows_live,
        "verified": found.holds and found.certified,
        "distance": found.distance,
        "distance_relative": found.relative,
        "bound": found.bound,
        "bound_from": found.bound_from,
        "argument": found.argument,
        "budget": error.budget,
        "error": error.model_dump(mode="json"),
        "refit": {"method": found.method, "residual": found.residual},
        "certificate": None if certificate is None else certificate.model_dump(mode="json"),
        "gradient": found.gradient,
    }
