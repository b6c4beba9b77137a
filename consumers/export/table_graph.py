"""A model with preprocessing as an ONNX graph: one input a column, double precision.

scikit-learn's converters would compute imputed values in single precision, which no runtime has for
doubles; so the few operations are put together here. Imports onnx.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from lethe.consumers.contract.events import Parameters
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array
from lethe.engine.store.layout.columns import FittedColumn

_OPSET, _IR = 19, 9  # the first in which texts can be compared, and the format that goes with it
_TYPES: Mapping[type, int] = {
    str: TensorProto.STRING,
    bool: TensorProto.BOOL,
    int: TensorProto.INT64,
}


def table_graph(event: Parameters, theta: Array, facts: Mapping[str, str]) -> bytes:
    """Return the graph of ``theta``, d x m with any intercept last.

    Inputs are n x 1, named as the columns: numbers and days since 1970-01-01 as doubles (NaN where
    missing), categories as text (empty where missing), whole numbers or booleans; as doubles if
    some of these were missing. The output ``variable`` is n x m, of a Poisson model the mean; of a
    logistic model, ``label`` (n,) and ``probabilities``, n x C. A row that the version refuses has
    the prediction NaN: a graph cannot refuse.

    Raises
    ------
    InvalidData
        A column is computed, or its categories are not all of one kind that ONNX has.
    """
    computed = next((column for column in event.columns if column.of), None)
    if computed is not None:
        raise InvalidData(
            f"column {computed.name!r} is computed ({computed.of}), for which there is no graph; "
            "export .skops, .json, .safetensors or .npz"
        )
    made = _Graph()
    parts = [made.features_of(column) for column in event.columns]
    p = len(theta) - int(event.fit_intercept)
    features = made.add("Concat", *parts, axis=1)
    out = made.add("MatMul", features, made.constant(theta[:p]))
    if event.fit_intercept:
        out = made.add("Add", out, made.constant(theta[p:]))
    if event.kind == "logistic":
        outputs = made.classified(out, event.classes)
    else:
        mean = "Exp" if event.kind == "poisson" else "Identity"
        made.add(mean, out, output="variable")
        shape = [None, theta.shape[1]]
        outputs = [helper.make_tensor_value_info("variable", TensorProto.DOUBLE, shape)]
    graph = helper.make_graph(made.nodes, "lethe", made.inputs, outputs, made.constants)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR
    )
    helper.set_model_props(model, dict(facts))
    return bytes(model.SerializeToString())


class _Graph:
    """Nodes, inputs and constants so far."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.inputs: list[ValueInfoProto] = []
        self.constants: list[TensorProto] = []

    def add(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add an operation; return the name of what it makes."""
        output = output or f"step.{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, values: NDArray[Any] | float) -> str:
        """Add a constant; return its name."""
        name = f"constant.{len(self.constants)}"
        array = np.asarray(values)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def classified(self, margin: str, classes: Sequence[str]) -> list[ValueInfoProto]:
        """Add a label and the probabilities of two classes or more, and return these outputs."""
        labels = np.array(classes, dtype=object) if classes else np.array([0, 1])
        odds = self.add("Exp", self.add("Neg", margin))
        one = self.constant(1.0)
        likely = self.add("Div", one, self.add("Add", one, odds))
        if len(labels) > len("ab"):
            self._among_several(margin, likely, labels)
        else:
            first = self.add("Div", one, self.add("Add", one, self.add("Exp", margin)))
            self.add("Concat", first, likely, axis=1, output="probabilities")
            chosen = self.add("Greater", margin, self.constant(0.0))
            named = [self.constant(labels[[c]]) for c in (1, 0)]
            label = self.add("Where", chosen, *named)
            self.add("Reshape", label, self.constant(np.array([-1])), output="label")
        kind, width = TensorProto.STRING if classes else TensorProto.INT64, len(labels)
        return [
            helper.make_tensor_value_info("label", kind, [None]),
            helper.make_tensor_value_info("probabilities", TensorProto.DOUBLE, [None, width]),
        ]

    def _among_several(self, margin: str, likely: str, labels: NDArray[Any]) -> None:
        """Add the most likely label, and each class's share of the sum of all sigmoids."""
        total = self.add("ReduceSum", likely, self.constant(np.array([1])), keepdims=1)
        self.add("Div", likely, total, output="probabilities")
        place = self.add("ArgMax", margin, axis=1, keepdims=0)
        self.add("Gather", self.constant(labels), place, output="label")

    def features_of(self, column: FittedColumn) -> str:
        """Add what makes a column's features, n x 1 or n x categories."""
        numeric = column.step in ("numeric", "date")
        kind = TensorProto.DOUBLE if numeric else _kind_of(column)
        self.inputs.append(helper.make_tensor_value_info(column.name, kind, [None, 1]))
        if numeric:
            x = column.name
            if column.impute is not None:
                x = self.add("Where", self.add("IsNaN", x), self.constant(column.impute), x)
            return self._scaled(column, x)
        hot = self._hot(column, kind)
        there = self.add("ReduceSum", hot, self.constant(np.array([1])), keepdims=1)
        if column.step == "one-hot":
            # An unknown category has 0 there, and 0 / 0 is NaN.
            known = hot if column.ignores_unknown else self.add("Div", hot, there)
            known = self._shared(column, known, there) if column.shares else known
            return self._scaled(column, known) if column.values else known
        x = self.add("MatMul", hot, self.constant(np.array(column.values)[:, None]))
        if column.otherwise is None:
            return self._scaled(column, self.add("Div", x, there))
        missing = self.add("Sub", self.constant(1.0), there)
        other = self.add("Mul", missing, self.constant(column.otherwise))
        return self._scaled(column, self.add("Add", x, other))

    def _shared(self, column: FittedColumn, hot: str, there: str) -> str:
        """Add the feature that rare categories have in place of their own, n x features."""
        k = len(column.categories)
        place = np.eye(k, k + 1)
        place[list(column.rare)] = last = np.eye(1, k + 1, k)
        made = self.add("MatMul", hot, self.constant(place))
        if column.otherwise is None:
            return made
        unknown = self.add("Sub", self.constant(1.0), there)
        return self.add("Add", made, self.add("MatMul", unknown, self.constant(last)))

    def _hot(self, column: FittedColumn, kind: int) -> str:
        """Add 1 for the category of a row among all, n x categories: 0 for one without a row."""
        gap: Any = np.nan if kind == TensorProto.DOUBLE else ""
        categories = [gap if known is None else known for known in column.categories]
        equal = self.add("Equal", column.name, self.constant(np.array([categories])))
        if kind == TensorProto.DOUBLE:  # nothing equals NaN
            missing = self.constant(np.array([[known is None for known in column.categories]]))
            there = self.add("And", self.add("IsNaN", column.name), missing)
            equal = self.add("Or", equal, there)
        hot = self.add("Cast", equal, to=TensorProto.DOUBLE)
        live = np.ones(len(categories))
        live[list(column.vanished)] = 0.0
        if column.step == "one-hot" and column.impute is not None:
            place = np.diag(live)
            place[column.categories.index(None), int(column.impute)] = 1.0
            return self.add("MatMul", hot, self.constant(place))
        return self.add("Mul", hot, self.constant(live))

    def _scaled(self, column: FittedColumn, x: str) -> str:
        mean, deviation = map(np.array, column.scaling)
        centred = self.add("Sub", x, self.constant(mean))
        return self.add("Div", centred, self.constant(deviation))


def _kind_of(column: FittedColumn) -> int:
    kinds = {type(known) for known in column.categories if known is not None} or {str}
    missing = None in column.categories
    if len(kinds) > 1 or (missing and "" in column.categories):
        raise InvalidData(
            f"column {column.name!r} has categories of several kinds, or empty text beside missing "
            "values, which an ONNX graph cannot tell apart; export .json, .safetensors or .npz"
        )
    kind = _TYPES[kinds.pop()]
    return TensorProto.DOUBLE if missing and kind != TensorProto.STRING else kind
