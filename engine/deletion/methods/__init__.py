"""Deletion methods, one file each: ``exact``, ``pru`` (the paper's), ``influence``.

All of them share the running answer theta_exact; they differ in what they publish of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lethe.engine.deletion.methods.exact import Exact
from lethe.engine.deletion.methods.influence import Influence
from lethe.engine.deletion.methods.method import DeletionMethod, Published, Step
from lethe.engine.deletion.methods.pru import ProjectiveResidualUpdate
from lethe.engine.errors import InvalidData

METHODS: Mapping[str, DeletionMethod] = MappingProxyType(
    {method.name: method for method in (ProjectiveResidualUpdate(), Exact(), Influence())}
)


def method_named(name: str) -> DeletionMethod:
    """Return the method of this name.

    Raises
    ------
    InvalidData
        There is none.
    """
    try:
        return METHODS[name]
    except KeyError:
        raise InvalidData(
            f"there is no deletion method {name!r}; choose one of {', '.join(METHODS)}"
        ) from None


__all__ = [
    "METHODS",
    "DeletionMethod",
    "Exact",
    "Influence",
    "ProjectiveResidualUpdate",
    "Published",
    "Step",
    "method_named",
]
