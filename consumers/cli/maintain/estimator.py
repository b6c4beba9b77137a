"""What ``lethe register`` does with ``--from``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from lethe.consumers.cli.terminal.output import Output
from lethe.engine.errors import InvalidData

if TYPE_CHECKING:  # scikit-learn takes a second
    from lethe.consumers.registration.fitted_estimator import FittedEstimator

_SAYS = ("kind", "ridge", "preprocess")
"""Options that the estimator takes the place of."""


def estimator_asked(
    options: dict[str, Any], names: Sequence[str] | None, out: Output
) -> FittedEstimator | None:
    """Return the estimator of --from, and put what it says into the options; None without it.

    ``names``: of the columns of an array that it was fitted on.

    Raises
    ------
    InvalidData
        It becomes no model.
    """
    path = options["estimator"]
    if path is None:
        _check_given(options)
        return None
    given = [name for name in _SAYS if options[name] is not None]
    given += ["no-intercept"] if options["no_intercept"] else []
    given += ["class-weight"] if options["class_weight"] else []
    if given:
        raise click.UsageError(f"--from says what --{given[0]} does; leave one of them out")
    from lethe.consumers.registration.fitted_estimator import FittedEstimator  # noqa: PLC0415
    from lethe.consumers.registration.table.skops_file import read_skops  # noqa: PLC0415
    from lethe.engine.conversion import natures  # noqa: PLC0415 (imports scikit-learn)

    loaded, digest = read_skops(path, "a fitted estimator")
    if options["dry_run"]:
        for step in natures(loaded, freeze=options["freeze"]):
            out.line(str(step))
    try:
        fitted = FittedEstimator.of(loaded, path, digest, names=names, freeze=options["freeze"])
    except InvalidData as error:
        raise InvalidData(f"{path}: {error}") from None
    options["kind"], options["ridge"] = fitted.kind.value, fitted.ridge
    options["no_intercept"] = not fitted.fit_intercept
    options["class_weight"] = fitted.class_weight
    return fitted


def _check_given(options: dict[str, Any]) -> None:
    for name in ("kind", "ridge"):
        if options[name] is None:
            hint = "; 1 is a usual start" if name == "ridge" else ""
            raise click.UsageError(f"give --{name}, or a fitted estimator with --from{hint}")
    if options["freeze"]:
        raise click.UsageError("--freeze requires --from")
