"""The formats of `lethe export`: parameters for any program, estimators for Python and ONNX.

None of them needs pickle to be read. ``.skops`` and ``.onnx`` are optional extras, imported when
they are asked for.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from safetensors.numpy import save

from lethe.consumers.contract.events import Parameters
from lethe.consumers.service.extras import extra
from lethe.engine.fit.objective import Array, Kind

METADATA = "lethe.json"
"""Member of a ``.skops`` file that says which version of which model it holds."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The newest parameters of a model: their event, theta (d x m, any intercept last), ridge."""

    event: Parameters
    theta: Array
    ridge: float

    def facts(self) -> dict[str, Any]:
        """Return what every format says about the version, ready for JSON."""
        event = self.event
        return {
            "model_id": event.model_id,
            "version": event.version,
            "generation": event.generation,
            "digest": event.digest,
            "parameters_digest": event.parameters_digest,
            "kind": event.kind,
            "method": event.method,
            "status": event.status,
            "fit_intercept": event.fit_intercept,
            "feature_names": list(event.feature_names),
            "target_names": list(event.target_names),
            **({"classes": list(event.classes)} if event.classes else {}),
            **({"columns": _columns(event)} if event.columns else {}),
        }

    def texts(self) -> dict[str, str]:
        """Return the same as text, where values are not text already as JSON."""
        return {
            name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for name, value in self.facts().items()
        }

    def tensors(self) -> dict[str, Array]:
        """Return theta, (p,) or p x m, and the intercept, scalar or (m,); 0 without one."""
        p, theta = len(self.event.feature_names), self.theta
        intercept = theta[p] if self.event.fit_intercept else np.zeros(theta.shape[1])
        if theta.shape[1] == 1:
            return {"theta": theta[:p, 0].copy(), "intercept": np.array(intercept[0])}
        return {"theta": theta[:p].copy(), "intercept": intercept.copy()}

    def estimator(self) -> Any:
        """Return a plain fitted estimator of scikit-learn, or a pipeline with preprocessing.

        Raises
        ------
        InvalidData
            scikit-learn has no transformer for one of the columns.
        """
        from lethe.consumers.export.estimator import estimator_of  # noqa: PLC0415 (scikit-learn)

        return estimator_of(self.event, self.theta, self.ridge)


def _columns(event: Parameters) -> list[dict[str, Any]]:
    return [column.model_dump(mode="json") for column in event.columns]


def as_json(exported: Exported) -> bytes:
    """Return one JSON object."""
    arrays = {name: array.tolist() for name, array in exported.tensors().items()}
    document = {**exported.facts(), **arrays}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def as_safetensors(exported: Exported) -> bytes:
    """Return safetensors, with the facts as metadata."""
    return bytes(save(exported.tensors(), metadata=exported.texts()))


def as_npz(exported: Exported) -> bytes:
    """Return arrays of NumPy. Lists of names become unicode arrays, never objects."""
    buffer = io.BytesIO()
    facts = exported.facts()
    if "columns" in facts:
        facts["columns"] = json.dumps(facts["columns"], ensure_ascii=False)
    named = {name: np.array(value) for name, value in facts.items()}
    arrays: dict[str, Any] = {**exported.tensors(), **named}
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def as_skops(exported: Exported) -> bytes:
    """Return the estimator in skops' format, which loads without a type that is not trusted.

    Raises
    ------
    InvalidData
        skops is not installed.
    """
    with extra("skops", "a .skops file"):
        from skops.io import dumps  # noqa: PLC0415 (an optional extra)

    buffer = io.BytesIO(dumps(exported.estimator()))
    with zipfile.ZipFile(buffer, "a") as members:
        members.writestr(METADATA, json.dumps(exported.facts(), indent=2, ensure_ascii=False))
    return buffer.getvalue()


def as_onnx(exported: Exported) -> bytes:
    """Return the estimator as an ONNX graph in double precision.

    Its input ``X`` is n x p; a classifier has the outputs ``label`` and ``probabilities``. With
    preprocessing inside the model there is an input for each column
    (`consumers.export.table_graph`).

    Raises
    ------
    InvalidData
        onnx and skl2onnx are not installed, or categories of a column have no type in ONNX.
    """
    with extra("onnx", "an .onnx file"):
        from onnx.helper import set_model_props  # noqa: PLC0415 (an optional extra)
        from skl2onnx import to_onnx  # noqa: PLC0415
        from skl2onnx.common.data_types import DoubleTensorType  # noqa: PLC0415

    if exported.event.columns:
        from lethe.consumers.export.table_graph import table_graph  # noqa: PLC0415 (imports onnx)

        return table_graph(exported.event, exported.theta, exported.texts())
    estimator = exported.estimator()
    if exported.event.kind == "linear":  # its converter reads the dtype of the intercept
        estimator.intercept_ = np.asarray(estimator.intercept_, dtype=np.float64)[()]
    options = None
    if Kind(exported.event.kind).has_classes:
        options = {id(estimator): {"zipmap": False}}  # an array of probabilities, not dictionaries
    width = len(exported.event.feature_names)
    graph = to_onnx(
        estimator, initial_types=[("X", DoubleTensorType([None, width]))], options=options
    )
    set_model_props(graph, exported.texts())
    return bytes(graph.SerializeToString())


FORMATS: MappingProxyType[str, Callable[[Exported], bytes]] = MappingProxyType(
    {
        ".json": as_json,
        ".safetensors": as_safetensors,
        ".npz": as_npz,
        ".skops": as_skops,
        ".onnx": as_onnx,
    }
)
"""By the ending of the file's name: what makes its bytes."""
