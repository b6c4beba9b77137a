"""``lethe verify``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from lethe.consumers.audit.digest_check import DigestCheck, verify_digest
from lethe.consumers.audit.verify import Verification, verify as verify_model
from lethe.consumers.cli.terminal.options import global_options, pass_options
from lethe.consumers.cli.terminal.output import Output, error_number, number, prepare
from lethe.consumers.registration.table.reader import Columns, read_prepared_table, read_table
from lethe.consumers.registration.training_data import TrainingData
from lethe.consumers.service.connect import open_runtime
from lethe.consumers.service.telemetry.progress import Progress
from lethe.consumers.versions.certificates import certificate_of
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.preprocessing import columns_of
from lethe.engine.store.layout.records import Certificate, OutputCertificateRecord


@click.command(short_help="Compare a model with an independent refit.")
@click.argument("model")
@click.option(
    "--digest",
    is_flag=True,
    help="Refit a linear model by rational arithmetic, and compare the digests of the parameters.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --digest: refit these rows (Parquet or CSV), not those of the store.",
)
@click.option("--id", "id_column", metavar="COL", help="Column of row ids in --data.")
@pass_options
@global_options
@click.pass_context
def verify(
    ctx: click.Context, /, *, model: str, digest: bool, data: Path | None, id_column: str | None
) -> int:
    """Retrain MODEL from scratch on its live rows and compare.

    The refit shares no code with the engine: QR of the augmented system for linear models,
    scipy.optimize for the others; its own remaining error is measured and allowed for.
    Prints the distance, the published bound and the budget; exit code 1 if the distance exceeds
    the bound. If the newest version carries no bound, the model is audited first: its gradient
    over all live rows is measured and turned into a bound.

    With --digest, a linear model is refitted by rational arithmetic, and each coefficient rounded
    once. Exit code 0 means that the parameters are, to the last bit, those of retraining on the
    live rows; with --data, also that a table of your own holds these rows and no others. It is so
    of versions whose error is `rounded`: those that a registration or a rebuild made.

    \b
    Examples:
      lethe verify churn
      lethe verify churn --digest --data remaining.parquet --id user_id
    """  # noqa: D301 - click looks for the character
    if (data is None) != (id_column is None) or (data is not None and not digest):
        raise click.UsageError("--data needs --digest and --id, and --id needs --data")
    settings, out = prepare(ctx)
    if digest:
        with open_runtime(settings) as runtime, out.progress() as report:
            report("refitting by rational arithmetic", 0, 0)
            table = None if data is None else partial(_table, data, str(id_column), report)
            check = verify_digest(runtime.store(), model, table)
        return _print_digest(out, check)
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


def _table(path: Path, id_column: str, report: Progress, config: ModelConfig) -> TrainingData:
    steps = {str(name): step for name, step in columns_of(config.preprocess).items()}
    columns = Columns(
        id=id_column,
        targets=config.target_names,
        features=None if steps else config.feature_names,
        classes=config.class_names,
    )
    if steps:
        return read_prepared_table(path, columns, config.kind, steps, report).data
    return read_table(path, columns, config.kind, report).data


def _print_digest(out: Output, check: DigestCheck) -> int:
    state, kind = check.state, check.state.meta.error.kind
    out.document(
        {
            "model_id": state.model_id,
            "version": state.version,
            "error_kind": kind,
            "rows": check.rows,
            "equal": check.equal,
            "parameters_digest": check.published,
            "refitted_digest": check.refitted,
            "differing": list(check.differing),
            "other_row": check.other_row,
        }
    )
    out.facts(
        {
            "model": f"{state.model_id}, version {state.version}, error kind {kind}",
            "published": check.published,
            "refitted": f"{check.refitted} ({check.rows} rows)",
        }
    )
    if check.other_row is not None:
        same = "; the parameters are identical nevertheless" if check.equal else ""
        out.line(f"DIFFERENT: {check.other_row}{same}")
    elif check.equal:
        out.line("identical: the parameters are those of retraining on these rows, bit for bit")
        return 0
    elif kind != "rounded":
        out.line(
            f"DIFFERENT in {len(check.differing)} coefficients: the error of this version is "
            f"`{kind}`; `lethe refresh {state.model_id} --size rebuild` publishes one that is "
            "`rounded`"
        )
    else:
        out.line(f"FAILED: coefficients differ, the first is {check.differing[0]}")
    return 1


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
