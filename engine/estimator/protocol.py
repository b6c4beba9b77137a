"""What scikit-learn's tools ask of an estimator, without importing scikit-learn.

`sklearn.base.BaseEstimator` would do the same, at the price of importing scikit-learn with the
library, and of attributes that a type checker takes for anything. So scikit-learn is imported by
the methods that only it calls.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar, Self

from lethe.engine.errors import InvalidData

if TYPE_CHECKING:
    from sklearn.utils import Tags


class Estimator:
    """Parameters by name, as `sklearn.base.clone` and searches over parameters use them.

    A parameter is an argument of ``__init__``, which stores it unchanged under its name; `fit`
    checks it.
    """

    estimator_type: ClassVar[str]

    @classmethod
    def _parameters(cls) -> list[str]:
        """Return the names of the parameters, in order of ``__init__``."""
        return list(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 (scikit-learn's)
        """Return the parameters by name.

        ``deep`` changes nothing: no parameter is an estimator.
        """
        return {name: getattr(self, name) for name in self._parameters()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; the next `fit` uses them, and a fitted state is as it was.

        Raises
        ------
        InvalidData
            There is no such parameter; none is set.
        """
        known = self._parameters()
        for name in params:
            if name not in known:
                raise InvalidData(
                    f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(known)}"
                )
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted model with the same parameters, for `sklearn.base.clone`.

        A transformer that was given fitted stays fitted, where scikit-learn would clone it, too.
        """
        from sklearn.base import clone  # noqa: PLC0415 (see the module)

        return type(self)(
            **{
                name: value if hasattr(value, "transform") else clone(value, safe=False)
                for name, value in self.get_params().items()
            }
        )

    def __repr__(self) -> str:
        """Return the call that makes this estimator, with what differs from the defaults."""
        defaults = inspect.signature(type(self)).parameters
        given = (
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if repr(value) != repr(defaults[name].default)
        )
        return f"{type(self).__name__}({', '.join(given)})"

    def __sklearn_tags__(self) -> Tags:
        """Return what scikit-learn's tools should know of this estimator."""
        from sklearn.utils import (  # noqa: PLC0415 (see the module)
            ClassifierTags,
            InputTags,
            RegressorTags,
            Tags,
            TargetTags,
        )

        classifier = self.estimator_type == "classifier"
        return Tags(
            estimator_type=self.estimator_type,
            target_tags=TargetTags(required=True, multi_output=not classifier),
            classifier_tags=ClassifierTags() if classifier else None,
            regressor_tags=None if classifier else RegressorTags(),
            input_tags=InputTags(sparse=True),
        )
