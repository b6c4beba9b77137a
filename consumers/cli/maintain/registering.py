"""What ``lethe register`` does: reads the table, fits, publishes, and says what it did."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from pydantic import ValidationError

from lethe.consumers.cli.maintain.class_weights import asked_weights, weights_lines
from lethe.consumers.cli.maintain.estimator import estimator_asked
from lethe.consumers.cli.maintain.planning import say_plan
from lethe.consumers.cli.maintain.preprocess import (
    preprocess_asked,
    proposed_file,
    proposing,
)
from lethe.consumers.cli.terminal.output import (
    Output,
    certificate_line,
    classes_line,
    counted,
    duration,
    error_number,
    number,
    prepare,
)
from lethe.consumers.registration.checks import (
    can_have_exact_sums,
    check_above_0,
    check_model_name,
    namespace_of,
)
from lethe.consumers.registration.class_weights import weights_of_classes
from lethe.consumers.registration.committing import committing
from lethe.consumers.registration.error_budget import fit_warnings
from lethe.consumers.registration.in_files import FileRegistrar
from lethe.consumers.registration.plan import Plan, plan
from lethe.consumers.registration.register import (
    Registered,
    Registrar,
    TrainingData,
    check,
    exists,
)
from lethe.consumers.registration.table.foreseen import (
    Columns,
    Foreseen,
    foresee,
    with_preprocessing,
)
from lethe.consumers.registration.table.frozen import FrozenFile
from lethe.consumers.registration.table.in_blocks import TableInBlocks
from lethe.consumers.registration.table.reader import TableRead, read_rows
from lethe.consumers.registration.table.source import TableTooLarge
from lethe.consumers.service.configuration.settings import Settings
from lethe.consumers.service.connect import open_runtime
from lethe.consumers.versions.certificates import certificate_of
from lethe.engine.error.budget import OverBudget
from lethe.engine.error.terms import ObjectiveNoise, OutputNoise, Terms
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.columns import Column
from lethe.engine.result import Conversion
from lethe.engine.rowstore.files import absolute
from lethe.engine.store.layout.config import LimitsRecord, ModelConfig
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.server.connection import refuse_eviction
from lethe.engine.store.sizes import stored_bytes

if TYPE_CHECKING:  # scikit-learn takes a second
    from lethe.consumers.registration.fitted_estimator import FittedEstimator

_NEEDS = (("accept_forgotten", "replace"), ("allow_change", "replace"), ("namespace", "subject"))
"""Options, and what each requires."""


def fit_and_publish(ctx: click.Context, options: dict[str, Any]) -> None:
    """Register the model that the options describe."""
    settings, out = prepare(ctx)
    for option, needed in _NEEDS:
        if options[option] and not options[needed]:
            raise click.UsageError(f"--{option.replace('_', '-')} requires --{needed}")
    if options["certify"] is not None and options["certify_output"] is not None:
        raise click.UsageError("give --certify or --certify-output, not both")
    options["certify"] = _terms(options)
    if options["certify"] is not None and options["over_budget"] is not None:
        raise click.UsageError(
            "--over-budget cannot be given with --certify or --certify-output: a certified model "
            "has a budget of its own, and publishes the exact answer only"
        )
    features = None if options["features"] is None else _split(options["features"])
    fitted = estimator_asked(options, features, out)
    _check_numbers(options)
    kind = Kind(options["kind"])
    preprocess = preprocess_asked(options, kind, fitted, out)
    if fitted is not None:
        features = fitted.columns if preprocess is None else None
    columns = Columns(
        id=options["id_column"],
        targets=options["targets"],
        features=features,
        subject=options["subject"],
    )
    check_model_name(options["model"])
    limits = _limits(options["limits"])
    foreseen = _foreseen(settings, out, options, columns, preprocess, fitted)
    in_files = options["rows_url"] is not None
    if options["dry_run"]:
        say_plan(out, _planned(options, kind, limits, foreseen), foreseen, options, fitted)
        return
    if in_files:
        table = TableInBlocks.of(foreseen, columns, kind, preprocess)
        with _proposing(options, columns, out, preprocess):
            _register_in_files(settings, out, options, columns, table, limits)
        return
    with out.progress() as report, open_runtime(settings) as runtime:
        refuse_eviction(runtime.store().client)
        if not options["replace"] and options["model"] in runtime.models():
            raise exists(options["model"])
        accept_forgotten = options["accept_forgotten"]
        with committing(
            Registrar, runtime, runtime.store(), report, lost_keys=accept_forgotten
        ) as registering:
            with _proposing(options, columns, out, preprocess):
                read = read_rows(foreseen, columns, kind, preprocess, report)
            config = _config(options, kind, limits, read.data)
            moved = None
            if fitted is not None:
                report("comparing with the estimator", 0, 0)
                texts = with_preprocessing(columns, fitted.preprocess)[1]
                moved = fitted.conversion(foreseen.opened.whole(texts), read.data)
                config = fitted.configured(config, moved, len(read.data.ids))
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
    _warn(done.state, moved)


def _proposing(
    options: dict[str, Any],
    columns: Columns,
    out: Output,
    preprocess: Mapping[str, Column] | FrozenFile | None,
) -> AbstractContextManager[None]:
    asked = preprocess is not None or options["estimator"] is not None
    return nullcontext() if asked else proposing(options["data"], columns, out)


def _foreseen(
    settings: Settings,
    out: Output,
    options: dict[str, Any],
    columns: Columns,
    preprocess: Mapping[str, Column] | FrozenFile | None,
    fitted: FittedEstimator | None,
) -> Foreseen:
    """Judge the table; one that is too large for the store gets ``rows_url``, if that is here.

    Raises
    ------
    InvalidData
        It cannot be used. `TableTooLarge`: with a store of its own, which other machines may share.
    """
    data, kind = options["data"], Kind(options["kind"])
    if options["rows_url"] is None:
        try:
            return foresee(data, columns, kind, preprocess)
        except TableTooLarge:
            if settings.redis_url is not None or kind is Kind.SOFTMAX:
                raise
            options["rows_url"] = str(settings.data_dir / "rows")
            out.line(f"more rows than the store takes: in files at {options['rows_url']} (--rows)")
    if fitted is not None and fitted.of_mean:
        raise InvalidData(
            "--from of a PoissonRegressor is for rows in the store: its ridge strength is alpha "
            "for each row; give --kind poisson and --ridge, alpha times the rows"
        )
    return foresee(data, columns, kind, preprocess, limited=False)


def _planned(options: dict[str, Any], kind: Kind, limits: LimitsRecord, foreseen: Foreseen) -> Plan:
    """Return the plan of --dry-run.

    Raises
    ------
    InvalidData
        No table of such columns can make the model.
    """
    asked = any(options[one] is not None for one in ("preprocess", "features", "estimator"))
    names = foreseen.asked if asked else foreseen.numeric
    if not names:
        raise InvalidData(f"{foreseen.opened.path}: no column is known to be numbers by its type")
    features, targets = np.empty((0, len(names))), np.empty((0, len(options["targets"])))
    data = TrainingData((), features, targets, names, options["targets"], {})
    unweighted = {**options, "class_weight": ()}  # the classes are not known yet
    config = _config(unweighted, kind, limits, data)
    if options["preprocess"] is None:
        check(config)
    source = foreseen.opened.source
    return plan(
        config,
        rows=foreseen.rows,
        files=len(source.files),
        table_bytes=source.size,
        is_csv=source.is_csv,
    )


def _register_in_files(
    settings: Settings,
    out: Output,
    options: dict[str, Any],
    columns: Columns,
    table: TableInBlocks,
    limits: LimitsRecord,
) -> None:
    """Register a model whose rows are read in blocks, and kept in files."""
    features, targets = table.names, table.columns.targets
    nothing = TrainingData(
        (),
        np.empty((0, len(features))),
        np.empty((0, len(targets))),
        features,
        targets,
        {},
        table.columns.classes or (),
        frozen_transformer=None if table.frozen is None else table.frozen.digest,
    )
    config = _config(options, Kind(options["kind"]), limits, nothing)
    with out.progress() as report, open_runtime(settings) as runtime:
        refuse_eviction(runtime.store().client)
        accept_forgotten = options["accept_forgotten"]
        with committing(
            FileRegistrar, runtime, runtime.store(), report, lost_keys=accept_forgotten
        ) as registering:
            done = registering.register_in_files(
                config,
                table,
                replace_model=options["replace"],
                accept_forgotten=accept_forgotten,
                allow_change=options["allow_change"],
                if_possible=options["exact_sums"] is None,
            )
        stored = stored_bytes(runtime.store(), done.state)
    read = TableRead(nothing, table.left_out)
    files = done.state.meta.row_files
    document = _document(done, read) | {"stored_bytes": stored, "rows_url": config.rows_url}
    out.document(document)
    for text in _lines(done, read):
        out.line(text)
    if files is not None:
        out.line(f"rows in files at {config.rows_url}")
    if options["estimator"] is not None:
        out.line("not compared with the estimator: rows in files are read in blocks")
    if proposal := _proposal(options, config.kind, columns, read):
        out.line(f"\n{proposal}")
    _warn(done.state, None)


def _terms(options: dict[str, Any]) -> Terms | None:
    """Return the terms of a certified model, if it is to be one; `check_terms` checks them."""
    if options["certify"] is not None:
        return ObjectiveNoise(*options["certify"])
    asked = options["certify_output"]
    return None if asked is None else OutputNoise(*asked)


def _proposal(options: dict[str, Any], kind: Kind, columns: Columns, read: TableRead) -> str:
    """Return a file for --preprocess if columns were left out that it could name; else nothing."""
    asked = options["preprocess"] or options["estimator"] or columns.features is not None
    if kind is Kind.SOFTMAX:  # the library alone has preprocessing inside these
        return ""
    return "" if asked or not read.left_out else proposed_file(options["data"], columns)


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
        class_weights=weights_of_classes(asked_weights(options["class_weight"]), kind, data),
        error_budget=options["error_budget"],
        refresh_every_seconds=options["refresh_every"],
        limits=limits,
        certify=options["certify"],
        over_budget=OverBudget(options["over_budget"] or OverBudget.COMPLETE),
        subject_namespace=None
        if options["subject"] is None
        else namespace_of(options["namespace"]),
        preprocess=data.preprocess,
        frozen_transformer=data.frozen_transformer,
        disclosure=options["disclosure"],
        exact_sums=options["exact_sums"] is True,
        take_out_of_range=options["take_out_of_range"],
        rows_url=absolute(options["rows_url"]),
    )
    if options["exact_sums"] is None and can_have_exact_sums(config):
        return config.model_copy(update={"exact_sums": True})
    return config


def _warn(state: ModelState, moved: Conversion | None) -> None:
    """Print what the model's owner should look at, on stderr."""
    for text in [*_warnings(state), *filter(None, [moved and moved.warning])]:
        click.echo(f"lethe: warning: {text}", err=True)


def _warnings(state: ModelState) -> list[str]:
    config = state.meta.config
    warnings = fit_warnings(config, state.generation, state.stream)
    if state.meta.status == "INTERCEPT_PENALISED":
        what = "a class has no rows" if config.m > 1 else "all targets are equal"
        what = "all counts are 0" if config.kind is Kind.POISSON else what
        warnings.append(f"{what}: the intercept is penalised like the features; check --target")
    return warnings


def _check_numbers(options: dict[str, Any]) -> None:
    for option in ("ridge", "error_budget"):
        check_above_0(f"--{option.replace('_', '-')}", options[option])


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
    certificate, converted = certificate_of(done.state), config.converted_from
    return {
        "model_id": config.model_id,
        "version": done.state.version,
        "generation": meta.generation,
        "digest": done.state.digest,
        "kind": config.kind.value,
        "method": config.method,
        "status": meta.status,
        "rows_live": meta.rows_live,
        "rows_left_out": done.in_ledger,
        "rows_of_erased_subjects": done.erased,
        "features": list(config.feature_names),
        "columns": [column.name for column in config.preprocess],
        "frozen_transformer": config.frozen_transformer,
        "converted_from": converted and converted.model_dump(mode="json"),
        "columns_left_out": list(read.left_out),
        "targets": list(config.target_names),
        "classes": list(config.class_names),
        "class_counts": meta.class_counts,
        "class_weights": list(config.class_weights),
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
    if (given := config.converted_from) is not None:
        lines.append(
            f"predictions of the {given.estimator} moved by {given.largest:.2g} at most, "
            f"{given.mean:.2g} on average: it was {given.relative:.2g} (relative) from its optimum"
        )
    if config.class_names and meta.class_counts is not None:
        lines.append(classes_line(config.class_names, meta.class_counts))
    lines += weights_lines(config)
    certificate = certificate_of(done.state)
    if certificate is not None:
        lines.append(certificate_line(certificate))
    if config.method == "pru" and (config.exact_sums or config.preprocess):
        better = "the bytes of retraining" if config.exact_sums else "what the statistics move, too"
        lines.append(f"--method exact would publish {better}, in less time (docs/methods.md)")
    if config.frozen_transformer is not None:
        lines.append("the transformer is frozen: what it learnt from deleted rows stays in it")
    if read.data.subjects:
        lines.append(counted(done.subjects, "subject"))
        without = len(read.data.ids) - sum(map(len, read.data.subjects.values()))
        if without:
            rows = counted(without, "row")
            lines.append(f"{rows} without a subject: no erasure of a person deletes them")
    if config.refresh_every_seconds is not None:
        lines.append(f"due for a rebuild every {duration(config.refresh_every_seconds)}")
    if read.left_out and config.converted_from is None:  # it has its columns
        columns = ", ".join(f"{name} ({what})" for name, what in read.left_out.items())
        one = len(read.left_out) == 1
        them, numbers = ("it", "a number") if one else ("them", "numbers")
        how = f"name {them} in the file of --preprocess"
        if not config.preprocess:
            how = f"encode {them} as {numbers}"
        lines.append(f"left out: {columns}; {how} to learn from {them}")
    if done.in_ledger:
        lines.append(f"left out: {counted(done.in_ledger, 'row')}, deleted before")
    if done.erased:
        lines.append(f"left out: {counted(done.erased, 'row')} of erased subjects")
    return lines
