"""``lethe register``.

Only its options are here, so that ``--help`` comes at once; `registering` does the work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lethe.consumers.cli.terminal.options import (
    GroupedCommand,
    Number,
    global_options,
    parse_duration,
    parse_limit,
    parse_table,
    pass_options,
)
from lethe.engine.error.budget import OverBudget


def _objective_terms(text: str) -> tuple[float, float, float]:
    """Return the numbers of --certify."""
    try:
        epsilon, delta, sigma = (float(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not EPS,DELTA,SIGMA: write 1,1e-4,10") from None
    return epsilon, delta, sigma


def _output_terms(text: str) -> tuple[float, float, float, int]:
    """Return the numbers of --certify-output."""
    try:
        epsilon, delta, alpha, versions = text.split(",")
        return float(epsilon), float(delta), float(alpha), int(versions)
    except ValueError:
        example = "1,1e-4,1e-8,1000"
        raise click.BadParameter(
            f"{text!r} is not EPS,DELTA,ALPHA,VERSIONS: write {example}"
        ) from None


_GROUPS = {
    "The table": (
        "data", "id_column", "targets", "features", "preprocess", "subject", "namespace", "dry_run",
    ),
    "A fitted estimator": ("estimator", "freeze"),
    "The model": ("kind", "ridge", "class_weight", "no_intercept", "method", "exact_sums"),
    "Error and refresh": (
        "error_budget", "over_budget", "refresh_every", "limits", "take_out_of_range",
    ),
    "Certified removal and disclosure": ("certify", "certify_output", "disclosure"),
    "Rows in files": ("rows_url", "workers", "dask", "spark"),
    "A model that exists": ("replace", "allow_change", "accept_forgotten"),
}  # fmt: skip


@click.command(
    cls=GroupedCommand, groups=_GROUPS, short_help="Fit a model from a file and publish it."
)
@click.argument("model")
@click.option(
    "--data",
    required=True,
    type=parse_table,
    metavar="PATH",
    help="Training rows: Parquet, or CSV in UTF-8 with commas and a header line. A file, a "
    "directory of files with the same columns (read in the order of their names; names that begin "
    "with . or _ are left out), or a URL of either: file, s3, gs, abfs, hdfs, or one that an "
    "installed fsspec knows.",
)
@click.option(
    "--id", "id_column", required=True, metavar="COL",
    help="Column of row ids: distinct, text or whole numbers (or UUIDs of 16 bytes), 1 to 128 "
    "characters.",
)  # fmt: skip
@click.option(
    "--target", "targets", required=True, multiple=True, metavar="COL",
    help="Column to predict. For a logistic model 0 or 1, or classes (text or whole numbers); with "
    "more than two, each is fitted against the rest. For a Poisson model a count, 0 or more. May "
    "be repeated for a linear model.",
)  # fmt: skip
@click.option(
    "--rows", "rows_url", metavar="URL",
    help="Keep the rows in files in this directory or object storage (s3://, gs://, abfss://), not "
    "in the store: for any number of rows, because --data is read in blocks.",
)  # fmt: skip
@pass_options
@click.option(
    "--from", "estimator", type=click.Path(path_type=Path), metavar="FILE",
    help="A fitted estimator or Pipeline of scikit-learn in a .skops file: it says kind, ridge, "
    "intercept, columns and preprocessing. The model is fitted to --data, on which FILE was "
    "fitted, and the output says how far FILE was from its own optimum. Nothing of it is executed.",
)  # fmt: skip
@click.option(
    "--freeze", is_flag=True,
    help="With --from: keep the fitted transformers as they are. What they have learnt of rows is "
    "then not deleted, and each version says so. Default: their statistics are part of the model, "
    "and a step that cannot be is refused.",
)  # fmt: skip
@click.option(
    "--kind", type=click.Choice(["linear", "logistic", "poisson", "softmax"]),
    help="The loss; poisson is of counts, with log link; softmax is multinomial logistic, of at "
    "least 3 classes. Required without --from.",
)  # fmt: skip
@click.option(
    "--ridge", type=Number("1 is a usual start"), metavar="F",
    help="Ridge strength, above 0; the same for any number of rows. Required without --from.",
)  # fmt: skip
@click.option(
    "--class-weight", "class_weight", multiple=True, metavar="LABEL=F",
    help="How much rows of a class count, above 0; may be repeated. Default: 1. The classes of "
    "a linear model are its targets -1 and 1. Inserted and corrected rows get the weight of their "
    "label.",
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
@click.option(
    "--dry-run", is_flag=True,
    help="Register nothing, and ask no server: say how large the table is, what memory and time "
    "the model will take, and with --from what becomes of each step. No row is read, but the lines "
    "of CSV files are counted.",
)  # fmt: skip
@global_options
@click.pass_context
def register(ctx: click.Context, /, **options: Any) -> None:
    """Fit MODEL from a file, precompute what deletions need, and publish version 0.

    \b
    Examples:
      lethe register churn --data rows.parquet --id customer --target left \\
        --kind logistic --ridge 1
      lethe register churn --data rows.parquet --id customer --target left \\
        --from pipeline.skops
    """  # noqa: D301 - click looks for the character
    from lethe.consumers.cli.maintain.registering import fit_and_publish  # noqa: PLC0415 - what --help need not wait for

    fit_and_publish(ctx, options)
