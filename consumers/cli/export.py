"""``lethe export``: the newest parameters as a file."""

from __future__ import annotations

import io
import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
import numpy as np
from safetensors.numpy import save

from lethe.consumers.cli.options import global_options
from lethe.consumers.cli.output import prepare
from lethe.consumers.contract.events import Parameters
from lethe.consumers.service.connect import open_runtime
from lethe.consumers.subscriber.published import published
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array

Tensors = dict[str, Array]


@click.command(short_help="Write the newest parameters to a file.")
@click.argument("model")
@click.option(
    "--out", "path", required=True, type=click.Path(path_type=Path), metavar="FILE",
    help="File name that ends in .json, .safetensors or .npz.",
)  # fmt: skip
@global_options
@click.pass_context
def export(ctx: click.Context, /, *, model: str, path: Path) -> None:
    """Write the newest parameters of MODEL to FILE, after checking their digest.

    The file has theta (features in order), a separate intercept, feature and target names, class
    names if the model has any, version and digests. In .safetensors the names are JSON in the
    metadata; .npz needs no pickle.
    An existing file is replaced atomically, so readers see either the old one or the new one.

    \b
    Examples:
      lethe export churn --out churn.json
      lethe export churn --out churn.safetensors
    """  # noqa: D301 - click looks for the character
    settings, out = prepare(ctx)
    encode = _FORMS.get(path.suffix.lower())
    if encode is None:
        raise InvalidData(f"{path}: the name must end in {', '.join(_FORMS)}")
    with open_runtime(settings) as runtime:
        event, theta = published(runtime.store(), model)
    data = encode(_tensors(event, theta), _facts(event))
    _replace(path, data)
    out.document({**_facts(event), "file": str(path), "bytes": len(data)})
    out.line(
        f"{path}: version {event.version} of {model}, {len(data)} bytes, digest {event.digest}"
    )


def _facts(event: Parameters) -> dict[str, Any]:
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
    }


def _tensors(event: Parameters, theta: Array) -> Tensors:
    """Return theta, (p,) or p x m, and the intercept, scalar or (m,); 0 if the model has none."""
    p = len(event.feature_names)
    intercept = theta[p] if event.fit_intercept else np.zeros(theta.shape[1])
    if theta.shape[1] == 1:
        return {"theta": theta[:p, 0].copy(), "intercept": np.array(intercept[0])}
    return {"theta": theta[:p].copy(), "intercept": intercept.copy()}


def _json(tensors: Tensors, facts: dict[str, Any]) -> bytes:
    document = {**facts, **{name: array.tolist() for name, array in tensors.items()}}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _safetensors(tensors: Tensors, facts: dict[str, Any]) -> bytes:
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in facts.items()
    }
    return bytes(save(tensors, metadata=texts))


def _npz(tensors: Tensors, facts: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    # Lists of names become unicode arrays, never objects: readers need no pickle.
    arrays: dict[str, Any] = {**tensors, **{k: np.array(value) for k, value in facts.items()}}
    np.savez(buffer, **arrays)
    return buffer.getvalue()


_FORMS: MappingProxyType[str, Callable[[Tensors, dict[str, Any]], bytes]] = MappingProxyType(
    {".json": _json, ".safetensors": _safetensors, ".npz": _npz}
)


def _replace(path: Path, data: bytes) -> None:
    """Replace a file atomically: write a temporary one beside it, sync it, rename it."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidData(
            f"{path}: cannot be written ({error.strerror}); name another place with --out"
        ) from error
