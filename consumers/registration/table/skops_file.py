"""What scikit-learn fitted, from a ``.skops`` file: read with limits, and no code of it is run."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path
from typing import Any

from lethe.consumers.registration.table.packed import Unpacked
from lethe.consumers.service.extras import extra
from lethe.engine.errors import InvalidData

MAX_BYTES = 64 << 20
"""Largest file, packed and unpacked: many times what a model of 8,000 features can use. An array
counts as often as the file names it, because skops unpacks it as often."""

MAX_SCHEMA_BYTES = 16 << 20
"""Largest JSON in it, which takes 20 to 40 times the memory once parsed: 100,000 categories."""

_SCHEMA = "schema.json"

EXTRA = "skops"  # it has both: skops, and pandas, to whose frames estimators are fitted
_TRUSTED = (
    "numpy.dtype",
    "scipy.interpolate._bsplines.BSpline",
    "scipy._lib.array_api_compat.numpy._aliases.asarray",
    "sklearn.compose._column_transformer.make_column_selector",
    "numpy.number",
    "numpy.integer",
    "numpy.floating",
    "builtins.object",
)
"""Types trusted beside those of scikit-learn and NumPy that skops trusts: SimpleImputer has the
first, SplineTransformer the next two, a ColumnTransformer that chose columns by type the others. It
has chosen when it was fitted: nothing of the selector is called."""


def read_skops(path: Path, what: str) -> tuple[Any, str]:
    """Return what a file holds, and the file's SHA-256; ``what`` is to be in it.

    Raises
    ------
    InvalidData
        The file cannot be read, has types that are not trusted, or is of another scikit-learn.
    """
    with extra(EXTRA, what):
        from sklearn.exceptions import InconsistentVersionWarning  # noqa: PLC0415
        from skops.io import loads  # noqa: PLC0415 (an optional extra)
        from skops.io.exceptions import UntrustedTypesFoundException  # noqa: PLC0415
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InvalidData(f"{path}: is larger than {MAX_BYTES} bytes; is it the right file?")
        data = path.read_bytes()
    except OSError as error:
        raise InvalidData(f"{path}: cannot be read ({error.strerror}); check the path") from None
    try:
        unpacked = Unpacked(data, MAX_BYTES, str(path))
        unpacked.check_named(_SCHEMA, MAX_SCHEMA_BYTES)
        with warnings.catch_warnings():
            warnings.simplefilter("error", InconsistentVersionWarning)
            loaded = loads(unpacked.stored(), trusted=list(_TRUSTED))
    except InvalidData:
        raise
    except UntrustedTypesFoundException as error:
        raise InvalidData(
            f"{path}: {str(error).rstrip('.')}; {what} consists of scikit-learn's own classes"
        ) from None
    except InconsistentVersionWarning as error:
        raise InvalidData(
            f"{path}: was fitted with scikit-learn {error.original_sklearn_version}, and here is "
            f"{error.current_sklearn_version}; fit it with that one"
        ) from None
    except Exception as error:  # a damaged file raises anything
        raise InvalidData(
            f"{path}: is no .skops file that can be read ({type(error).__name__}); write it with "
            "skops.io.dump"
        ) from None
    return loaded, hashlib.sha256(data).hexdigest()
