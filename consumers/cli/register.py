"""``lethe register``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click
from pydantic import TypeAdapter, ValidationError

from lethe.consumers.cli.preprocess import preprocess_asked, proposed_file, read_rows
from lethe.consumers.cli.terminal.options import (
    Number,
    global_options,
    parse_duration,
    parse_limit,
)
from lethe.consumers.cli.terminal.output import (
    certificate_line,
    classes_line,
    counted,
    duration,
    error_number,
    number,
    prepare,
)
from lethe.consumers.contract.events import STEPS, Id
from lethe.consumers.registration.checks import can_have_exact_sums
from lethe.consumers.registration.error_budget import fit_warnings
from lethe.consumers.registration.register import Registered, Registrar, TrainingData, exists
from lethe.consumers.registration.table.file import check_readable
from lethe.consumers.registration.table.reader import Columns, TableRead
from lethe.consumers.registration.writer import committing
from lethe.consumers.service.connect import open_runtime
from lethe.consumers.suppression.marks import DEFAULT_NAMESPACE
from lethe.consumers.versions.certificates import certificate_of
from lethe.engine.error.budget import OverBudget
from lethe.engine.error.terms import ObjectiveNoise, OutputNoise, Terms
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.store.layout.config import LimitsRecord, ModelConfig
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.server.connection import refuse_eviction
from lethe.engine.store.sizes import stored_bytes


def _objective_terms(text: str) -> Terms:
    """Return the terms of a model with noise in its objective; `check_terms` checks them."""
    try:
        epsilon, delta, sigma = (float(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not EPS,DELTA,SIGMA: write 1,1e-4,10") from None
    return ObjectiveNoise(epsilon, delta, sigma)


def _output_terms(text: str) -> Terms:
    """Return the terms of a model with noise on its output; `check_terms` checks them."""
    try:
        epsilon, delta, alpha, versions = text.split(",")
        return OutputNoise(float(epsilon), float(delta), float(alpha), int(versions))
    except ValueError:
        example = "1,1e-4,1e-8,1000"
        raise click.BadParameter(
            f"{text!r} is not EPS,DELTA,ALPHA,VERSIONS: write {example}"
        ) from None


@click.command(short_help="Fit a model from a file and publish it.")
@click.argument("model")
@click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Training rows: Parquet, or CSV in UTF-8 with commas and a header line.",
)
@click.option(
    "--id", "id_column", required=True, metavar="COL",
    help="Column of row ids: distinct, text or whole numbers (or UUIDs of 16 bytes), 1 to 128 "
    "characters.",
)  # fmt: skip
@click.option(
    "--target", "targets", required=True, multiple=True, metavar="COL",
    help="Column to predict. For a logistic model 0 or 1, or classes (text or whole numbers); with "
    "more than two, each is fitted against the rest. May be repeated for a linear model.",
)  # fmt: skip
@click.option("--kind", required=True, type=click.Choice(["linear", "logistic"]), help="The loss.")
@click.option(
    "--ridge", required=True, type=Number("1 is a usual start"), metavar="F",
    help="Ridge strength, above 0; the same for any number of rows.",
)  # fmt: skip
@click.option(
    "--features", metavar="A,B,C",
    help="Columns to learn from, in order. Default: every other numeric column except the subject.",
)  # fmt: skip
@click.option(
    "--preprocess", type=click.Path(path_type=Path), metavar="FILE",
    help="TOML file that says what is done to each column: numeric, one-hot, ordinal, "
    "target-encode or date. Means, deviations and encodings are then part of the model, and forget "
    "rows as it does; --data holds the columns as they are. Without it, a table with text, dates "
    "or missing numbers gets such a file proposed. For linear models, and logistic ones of two "
    "classes, by --method pru or exact. Or a fitted transformer of scikit-learn in a .skops file, "
    "for any model: it stays as it is.",
)  # fmt: skip
@click.option(
    "--subject", metavar="COL",
    help="Column that names the subject of a row, for delete --subject and `lethe erase`.",
)  # fmt: skip
@click.option(
    "--namespace", metavar="N",
    help="Namespace of the subjects, for `lethe erase --namespace`. Default: none.",
)  # fmt: skip
@click.option("--no-intercept", is_flag=True, help="Fit no intercept. (It is never penalised.)")
@click.option(
    "--method", default="pru", show_default=True, type=click.Choice(["pru", "exact", "influence"]),
    help="What is published after a deletion: the projective residual update, the exact "
    "leave-k-out answer, or the influence-function step.",
)  # fmt: skip
@click.option(
    "--error-budget", default=0.01, show_default=True, type=Number(), metavar="F",
    help="Relative distance to retraining at which a refresh is scheduled.",
)  # fmt: skip
@click.option(
    "--over-budget", type=click.Choice([each.value for each in OverBudget]),
    help="What happens to a version over the error budget. complete (default): the exact answer is "
    "published instead of a projection. publish: the projection is published. hold: as complete; "
    "if that is over the budget, too, the requests wait for a rebuild without their rows.",
)  # fmt: skip
@click.option(
    "--refresh-every", type=parse_duration, metavar="DURATION",
    help="Age at which `lethe refresh --due` schedules a rebuild: 30m, 24h, 7d.",
)  # fmt: skip
@click.option(
    "--limit", "limits", type=parse_limit, multiple=True, metavar="NAME=VALUE",
    help="A limit of the refresh policy; may be repeated. far_under: fraction of the budget that a "
    "refresh must reach (0.25). fraction_of_d, floor_rows: compact or rebuild after "
    "max(d x fraction, floor) deleted rows (0.5, 2048), or once they have cost as much as "
    "folding them away. completions: rebuild after this many (64). condition: rebuild above this "
    "condition number (1e12). age_seconds: rebuild when data derived from deleted rows is older "
    "(2592000).",
)  # fmt: skip
@click.option(
    "--certify", type=_objective_terms, metavar="EPS,DELTA,SIGMA",
    help="Certified removal: fit with noise of standard deviation SIGMA in the objective, and "
    "publish only while it makes a model (EPS,DELTA)-indistinguishable from retraining. Needs "
    "--method exact. Read docs/certified.md for what this does and does not say.",
)  # fmt: skip
@click.option(
    "--certify-output", type=_output_terms, metavar="EPS,DELTA,ALPHA,VERSIONS",
    help="Certified removal by noise on what is published, fresh for each version: VERSIONS "
    "versions together are (EPS,DELTA)-indistinguishable from retraining, as long as each is "
    "proved to be within ALPHA of it. Afterwards requests wait. Needs --method exact.",
)  # fmt: skip
@click.option(
    "--disclosure",
    is_flag=True,
    help="Keep what published versions disclose of each row that they delete, correct or insert, "
    "for `lethe disclosure`. Linear models of one target by --method exact.",
)
@click.option(
    "--exact-sums/--no-exact-sums", default=None,
    help="Keep the sums that the model is a function of with all their digits, so that the exact "
    "answer of every version is correctly rounded: the same bytes as retraining gives. Default: "
    "wherever it is possible, which is for linear models of at most 200 coefficients (with "
    "--preprocess, 100 columns), by --method exact or pru, without --certify and --disclosure.",
)  # fmt: skip
@click.option(
    "--take-out-of-range", is_flag=True,
    help="Insert and correct rows also where no version with them can be within the error budget: "
    "a value of 1e9 beside values near 1, for example. Default: they are rejected (OUT_OF_RANGE).",
)  # fmt: skip
@click.option(
    "--replace", is_flag=True,
    help="The model exists: publish its next version from this file. Rows that were once deleted "
    "never come back; the output says how many were left out.",
)  # fmt: skip
@click.option(
    "--allow-change", is_flag=True,
    help="With --replace: the kind and the columns of the model may change.",
)  # fmt: skip
@click.option(
    "--accept-forgotten", is_flag=True,
    help="With --replace, if neither the store nor the log has the model's commits any more, or "
    "their key is lost: continue anyway. Which rows were deleted is then unknown, so FILE must "
    "contain none of them.",
)  # fmt: skip
@global_options
@click.pass_context
def register(ctx: click.Context, /, **options: Any) -> None:
    """Fit MODEL from a file, precompute what deletions need, and publish version 0.

    \b
    Example:
      lethe register churn --data rows.parquet --id customer --target left \\
        --kind logistic --ridge 1
    """  # noqa: D301 - click looks for the character
    settings, out = prepare(ctx)
    for option in ("accept_forgotten", "allow_change"):
        if options[option] and not options["replace"]:
            raise click.UsageError(f"--{option.replace('_', '-')} requires --replace")
    if options["certify"] is not None and options["certify_output"] is not None:
        raise click.UsageError("give --certify or --certify-output, not both")
    options["certify"] = options["certify"] or options["certify_output"]
    if options["certify"] is not None and options["over_budget"] is not None:
        raise click.UsageError(
            "--over-budget cannot be given with --certify or --certify-output: a certified model "
            "has a budget of its own, and publishes the exact answer only"
        )
    if options["namespace"] is not None and options["subject"] is None:
        raise click.UsageError("--namespace requires --subject")
    _check_numbers(options)
    kind = Kind(options["kind"])
    preprocess = preprocess_asked(options, kind)
    features = options["features"]
    columns = Columns(
        id=options["id_column"],
        targets=options["targets"],
        features=None if features is None else _split(features),
        subject=options["subject"],
    )
    _check_name(options["model"])
    limits = _limits(options["limits"])
    check_readable(options["data"])
    with out.progress() as report, open_runtime(settings) as runtime:
        refuse_eviction(runtime.store().client)
        if not options["replace"] and options["model"] in runtime.models():
            raise exists(options["model"])
        accept_forgotten = options["accept_forgotten"]
        with committing(
            Registrar, runtime, runtime.store(), report, lost_keys=accept_forgotten
        ) as registering:
            read = read_rows(options["data"], columns, kind, preprocess, report, out)
            config = _config(options, kind, limits, read.data)
            proposal = _proposal(options, kind, columns, read)
            done = registering.register(
                config,
                read.data,
                replace_model=options["replace"],
                accept_forgotten=accept_forgotten,
                allow_change=options["allow_change"],
            )
        stored = stored_bytes(runtime.store(), done.state)
    out.document(_document(done, read) | {"stored_bytes": stored})
    for text in [*_lines(done, read), *_size(stored, done.state.meta.rows_live)]:
        out.line(text)
    if proposal:
        out.line(f"\n{proposal}")
    for text in _warnings(done.state):
        click.echo(f"lethe: warning: {text}", err=True)


def _proposal(options: dict[str, Any], kind: Kind, columns: Columns, read: TableRead) -> str:
    """Return a file for --preprocess if columns were left out that it could name; else nothing."""
    served = kind is Kind.LINEAR or len(read.data.class_names) <= 2
    asked = options["preprocess"] is not None or columns.features is not None
    return (
        "" if asked or not (read.left_out and served) else proposed_file(options["data"], columns)
    )


def _config(
    options: dict[str, Any], kind: Kind, limits: LimitsRecord, data: TrainingData
) -> ModelConfig:
    config = ModelConfig(
        model_id=options["model"],
        kind=kind,
        method=options["method"],
        ridge=options["ridge"],
        fit_intercept=not options["no_intercept"],
        feature_names=data.feature_names,
        target_names=data.target_names,
        class_names=data.class_names,
        error_budget=options["error_budget"],
        refresh_every_seconds=options["refresh_every"],
        limits=limits,
        certify=options["certify"],
        over_budget=OverBudget(options["over_budget"] or OverBudget.COMPLETE),
        subject_namespace=_namespace(options),
        preprocess=data.preprocess,
        frozen_transformer=data.frozen_transformer,
        disclosure=options["disclosure"],
        exact_sums=options["exact_sums"] is True,
        take_out_of_range=options["take_out_of_range"],
    )
    if options["exact_sums"] is None and can_have_exact_sums(config):
        return config.model_copy(update={"exact_sums": True})
    return config


def _warnings(state: ModelState) -> list[str]:
    config = state.meta.config
    warnings = fit_warnings(config, state.generation, state.stream)
    if state.meta.status == "INTERCEPT_PENALISED":
        what = "a class has no rows" if config.blocks > 1 else "all targets are equal"
        warnings.append(f"{what}: the intercept is penalised like the features; check --target")
    return warnings


def _namespace(options: dict[str, Any]) -> str | None:
    """Return the namespace of the subjects; None without a column of subjects."""
    if options["subject"] is None:
        return None
    if options["namespace"] is None:
        return DEFAULT_NAMESPACE
    try:
        return str(TypeAdapter(Id).validate_python(options["namespace"]))
    except ValidationError:
        raise InvalidData("a namespace has 1 to 128 characters") from None


def _check_numbers(options: dict[str, Any]) -> None:
    for option in ("ridge", "error_budget"):
        if not (math.isfinite(options[option]) and options[option] > 0):
            name = option.replace("_", "-")
            raise InvalidData(f"--{name} must be a finite number above 0, not {options[option]:g}")


def _check_name(model: str) -> None:
    try:
        TypeAdapter(Id).validate_python(model)
    except ValidationError:
        raise InvalidData("a model's name has 1 to 128 characters") from None
    odd = not model.isprintable() or model != model.strip() or model.startswith("-")
    if odd or model in STEPS:
        raise InvalidData(
            f"{model!r} is not a valid model name: a name has no blanks around it and no control "
            "characters, does not begin with a hyphen, and is not . or .."
        )


def _split(features: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in features.split(",") if name.strip())


def _limits(limits: tuple[tuple[str, float], ...]) -> LimitsRecord:
    known = LimitsRecord.model_fields
    for name, value in limits:
        if name not in known:
            raise InvalidData(f"there is no limit {name!r}; choose one of {', '.join(known)}")
        if not (math.isfinite(value) and value > 0):
            raise InvalidData(f"limit {name} must be a finite number above 0, not {value:g}")
    try:
        return LimitsRecord.model_validate(dict(limits))
    except ValidationError as error:
        wrong = error.errors()[0]["loc"][0]
        raise InvalidData(f"limit {wrong} must be a whole number") from None


def _document(done: Registered, read: TableRead) -> dict[str, Any]:
    meta, config = done.state.meta, done.state.meta.config
    certificate = certificate_of(done.state)
    return {
        "model_id": config.model_id,
        "version": done.state.version,
        "generation": meta.generation,
        "digest": done.state.digest,
        "kind": config.kind.value,
        "method": config.method,
        "status": meta.status,
        "rows_live": meta.rows_live,
        "rows_left_out": done.left_out,
        "rows_of_erased_subjects": done.erased,
        "features": list(config.feature_names),
        "columns": [column.name for column in config.preprocess],
        "frozen_transformer": config.frozen_transformer,
        "columns_left_out": list(read.left_out),
        "targets": list(config.target_names),
        "classes": list(config.class_names),
        "class_counts": meta.class_counts,
        "subjects": done.subjects,
        "fit_intercept": config.fit_intercept,
        "error": meta.error.model_dump(mode="json"),
        "certificate": None if certificate is None else certificate.model_dump(mode="json"),
    }


def _size(stored: int | None, rows: int) -> list[str]:
    """Return what the model takes of the store, unless that does not say."""
    if stored is None or rows == 0:
        return []
    megabytes, each = stored / 1e6, round(stored / rows)
    return [
        f"in the store: {megabytes:.1f} MB, {counted(each, 'byte')} a row; a rebuild needs as much "
        "again while it runs"
    ]


def _lines(done: Registered, read: TableRead) -> list[str]:
    meta, config = done.state.meta, done.state.meta.config
    features = counted(len(config.feature_names), "feature")
    intercept = " and an intercept" if config.fit_intercept else ""
    lines = [
        f"registered {config.model_id}: version {done.state.version}, {config.kind} by "
        f"{config.method}, {counted(meta.rows_live, 'row')}, {features}{intercept}",
        f"error {error_number(meta.error.relative)} of a budget of {number(config.error_budget)}",
    ]
    if config.class_names and meta.class_counts is not None:
        lines.append(classes_line(config.class_names, meta.class_counts))
    certificate = certificate_of(done.state)
    if certificate is not None:
        lines.append(certificate_line(certificate))
    if config.frozen_transformer is not None:
        lines.append("the transformer is frozen: what it learnt from deleted rows stays in it")
    if read.data.subjects:
        lines.append(counted(done.subjects, "subject"))
        without = len(read.data.ids) - sum(map(len, read.data.subjects.values()))
        if without:
            rows = counted(without, "row")
            lines.append(f"{rows} without a subject: erasing a person leaves them")
    if config.refresh_every_seconds is not None:
        lines.append(f"due for a rebuild every {duration(config.refresh_every_seconds)}")
    if read.left_out:
        columns = ", ".join(f"{name} ({what})" for name, what in read.left_out.items())
        one = len(read.left_out) == 1
        them, numbers = ("it", "a number") if one else ("them", "numbers")
        how = f"name {them} in the file of --preprocess"
        if not config.preprocess:
            how = f"encode {them} as {numbers}"
        lines.append(f"left out: {columns}; {how} to learn from {them}")
    if done.left_out:
        lines.append(f"left out: {counted(done.left_out, 'row')}, deleted before")
    if done.erased:
        lines.append(f"left out: {counted(done.erased, 'row')} of erased subjects")
    return lines
