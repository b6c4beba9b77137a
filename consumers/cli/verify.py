"""``lethe verify``."""

from __future__ import annotations

from typing import Any

import click

from lethe.consumers.audit.verify import Verification, verify as verify_model
from lethe.consumers.cli.terminal.options import global_options
from lethe.consumers.cli.terminal.output import error_number, number, prepare
from lethe.consumers.service.connect import open_runtime
from lethe.consumers.versions.certificates import certificate_of
from lethe.engine.store.layout.records import Certificate, OutputCertificateRecord


@click.command(short_help="Compare a model with an independent refit.")
@click.argument("model")
@global_options
@click.pass_context
def verify(ctx: click.Context, /, *, model: str) -> int:
    """Retrain MODEL from scratch on its live rows and compare.

    The refit shares no code with the engine: QR of the augmented system for linear models,
    scipy.optimize for logistic ones; its own remaining error is measured and allowed for.
    Prints the distance, the published bound and the budget; exit code 1 if the distance exceeds
    the bound. If the newest version carries no bound, the model is audited first: its gradient
    over all live rows is measured and turned into a bound.

    \b
    Example:
      lethe verify churn
    """  # noqa: D301 - click looks for the character
    settings, out = prepare(ctx)
    with open_runtime(settings) as runtime, out.progress() as report:
        report("retraining on the live rows", 0, 0)
        verification = verify_model(runtime.store(), model)
    out.document(_document(verification))
    error = verification.state.meta.error
    out.facts(
        {
            "model": f"{model}, version {verification.state.version}, "
            f"{verification.rows_live} live rows",
            "refit": f"{verification.method}; itself within {number(verification.residual)}",
            "distance": f"{number(verification.distance)} "
            f"({number(verification.relative)} relative)",
            "bound": f"{number(verification.bound)} ({verification.origin})",
            "budget": f"{number(error.budget)} relative; published error "
            f"{error_number(error.relative)}",
        }
    )
    if verification.holds:
        out.line("verified: the distance is within the bound")
    else:
        out.line("FAILED: the distance exceeds the bound")
    certificate = certificate_of(verification.state)
    if certificate is not None and verification.measured is not None:
        out.line(f"certificate: {_certificate(certificate, verification)}")
    return 0 if verification.holds and verification.certified else 1


def _document(verification: Verification) -> dict[str, Any]:
    error, certificate = verification.state.meta.error, certificate_of(verification.state)
    return {
        "model_id": verification.state.model_id,
        "version": verification.state.version,
        "digest": verification.state.digest,
        "rows_live": verification.rows_live,
        "verified": verification.holds and verification.certified,
        "distance": verification.distance,
        "distance_relative": verification.relative,
        "bound": verification.bound,
        "bound_from": verification.bound_from,
        "argument": verification.argument,
        "budget": error.budget,
        "error": error.model_dump(mode="json"),
        "refit": {"method": verification.method, "residual": verification.residual},
        "certificate": None if certificate is None else certificate.model_dump(mode="json"),
        "certificate_measured": verification.measured,
    }


def _certificate(certificate: Certificate, verification: Verification) -> str:
    """Return what was measured of a certified model, beside what its certificate allows."""
    within = "within" if verification.certified else "FAILED: not within"
    measured = number(verification.measured)
    if isinstance(certificate, OutputCertificateRecord):
        alpha = number(certificate.alpha)
        return f"theta without its noise is {measured} from the refit, {within} alpha = {alpha}"
    return (
        f"a gradient residual of {measured} is {within} the {number(certificate.spent)} spent of a "
        f"budget of {number(certificate.budget)}"
    )
