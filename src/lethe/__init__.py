"""Lethe: a streaming deletion engine for machine-learning models.

`LinearModel`, `LogisticModel`, `PoissonModel` and `SoftmaxModel` are the library alone: fit, delete
rows, keep the error known.
`Numeric`, `Date`, `OneHot`, `Ordinal` and `TargetEncode` say what is done to a table's columns;
`Refitted` has any other transformer fitted anew at every change.
`register` makes a model of the service of a fitted estimator of scikit-learn.
`ModelSubscriber` reads verified versions of models that workers keep up to date.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lethe.consumers.registration.from_python import register
    from lethe.consumers.subscriber.subscriber import ModelSubscriber
    from lethe.engine.generalised import PoissonModel, SoftmaxModel
    from lethe.engine.models import LinearModel, LogisticModel
    from lethe.engine.preprocess.input.columns import Date, Numeric, OneHot, Ordinal, TargetEncode
    from lethe.engine.preprocess.refitted import Refitted

__all__ = [
    "Date",
    "LinearModel",
    "LogisticModel",
    "ModelSubscriber",
    "Numeric",
    "OneHot",
    "Ordinal",
    "PoissonModel",
    "Refitted",
    "SoftmaxModel",
    "TargetEncode",
    "register",
]

_COLUMNS = ("Date", "Numeric", "OneHot", "Ordinal", "TargetEncode")


def __getattr__(name: str) -> Any:
    """Import a class when it is first asked for: NumPy, Kafka and Redis take a while (PEP 562)."""
    if name in ("LinearModel", "LogisticModel"):
        from lethe.engine import models  # noqa: PLC0415 (see above)

        return getattr(models, name)
    if name in _COLUMNS:
        from lethe.engine.preprocess.input import columns  # noqa: PLC0415 (see above)

        return getattr(columns, name)
    if name == "Refitted":
        from lethe.engine.preprocess.refitted import Refitted  # noqa: PLC0415

        return Refitted
    if name in ("PoissonModel", "SoftmaxModel"):
        from lethe.engine import generalised  # noqa: PLC0415

        return getattr(generalised, name)
    if name == "register":
        from lethe.consumers.registration.from_python import register  # noqa: PLC0415

        return register
    if name == "ModelSubscriber":
        from lethe.consumers.subscriber.subscriber import ModelSubscriber  # noqa: PLC0415

        return ModelSubscriber
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the names that there are, those that are not imported yet included."""
    return sorted({*globals(), *__all__})
