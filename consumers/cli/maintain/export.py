"""``lethe export``: the newest parameters as a file."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import click

from lethe.consumers.cli.terminal.options import global_options
from lethe.consumers.cli.terminal.output import prepare
from lethe.consumers.export.files import FORMATS, Exported
from lethe.consumers.service.connect import open_runtime
from lethe.consumers.subscriber.published import published_of
from lethe.engine.errors import InvalidData


@click.command(short_help="Write the newest parameters to a file.")
@click.argument("model")
@click.option(
    "--out", "path", required=True, type=click.Path(path_type=Path), metavar="FILE",
    help="File name that ends in .json, .safetensors, .npz, .skops or .onnx.",
)  # fmt: skip
@global_options
@click.pass_context
def export(ctx: click.Context, /, *, model: str, path: Path) -> None:
    """Write the newest parameters of MODEL to FILE, after checking their digest.

    The file has theta (features in order), a separate intercept, feature and target names, class
    names if the model has any, version and digests. In .safetensors the names are JSON in the
    metadata; .npz needs no pickle. A .skops file holds a fitted estimator of scikit-learn, an
    .onnx file the same as a graph; both need the extra of that name.
    An existing file is replaced atomically, so readers see either the old one or the new one.

    \b
    Examples:
      lethe export churn --out churn.json
      lethe export churn --out churn.safetensors
      lethe export churn --out churn.onnx
    """  # noqa: D301 - click looks for the character
    settings, out = prepare(ctx)
    encode = FORMATS.get(path.suffix.lower())
    if encode is None:
        raise InvalidData(f"{path}: the name must end in {', '.join(FORMATS)}")
    with open_runtime(settings) as runtime:
        state = runtime.store().load_model(model)
    event, theta = published_of(state)
    exported = Exported(event, theta, state.meta.config.ridge)
    data = encode(exported)
    _replace(path, data)
    out.document({**exported.facts(), "file": str(path), "bytes": len(data)})
    out.line(
        f"{path}: version {event.version} of {model}, {len(data)} bytes, digest {event.digest}"
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
