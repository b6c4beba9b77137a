"""``lethe key``: keys that sign events and requests, keys that seal commits, keys of the API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from lethe.consumers.cli.terminal.options import Flags, global_options, parse_duration
from lethe.consumers.cli.terminal.output import Output, counted, prepare
from lethe.consumers.contract.events import rfc3339
from lethe.consumers.contract.sealing import SealKeys, new_seal_file, rotate_seal_file
from lethe.consumers.contract.signatures import Signer, new_key_file, read_signer
from lethe.consumers.contract.tlog import log_name, verifier_key
from lethe.consumers.server.keys import issue_key
from lethe.consumers.service.configuration.signing_keys import signer_of

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group(short_help="Create keys: to sign, to seal commits, to call the HTTP API.")
@global_options
def key() -> None:
    """Create keys: to sign events and requests, to seal commits, to call the HTTP API.

    Set LETHE_SIGNING_KEY to the file for the workers and for `lethe register`; add the public key
    to the file that readers name in LETHE_TRUSTED_KEYS, one key per line. Set LETHE_SEAL_KEY_FILE
    to a file of seal keys, the same for deletion and erasure workers and for `lethe register`.

    A key of the HTTP API (`lethe serve --keys FILE`) says who calls, and for which models.

    \b
    Examples:
      lethe key new signing.pem >> trusted-keys
      lethe key show signing.pem
      lethe key show > public-keys
      lethe key new --seal seal.keys
      lethe key rotate --seal seal.keys
      lethe key issue api.keys --name crm --model 'churn*' --expires 90d
    """  # noqa: D301 - click looks for the character


@key.command(short_help="Create a key in a new file.")
@click.argument("file", type=_FILE)
@click.option("--seal", is_flag=True, help="Create a key that seals commits, not a signing key.")
@global_options
@click.pass_context
def new(ctx: click.Context, /, *, file: Path, seal: bool) -> None:
    """Create a private key in the new FILE, readable only by you; print its public key.

    With --seal: create a key that seals commits. A file that exists is left unchanged.
    """
    if seal:
        _print_seals(ctx, file, new_seal_file(file))
    else:
        _print(ctx, new_key_file(file))


@key.command(short_help="Put a new seal key first in a file.")
@click.argument("file", type=_FILE)
@click.option("--seal", is_flag=True, required=True, help="The keys that seal commits.")
@global_options
@click.pass_context
def rotate(ctx: click.Context, /, *, file: Path, seal: bool) -> None:
    """Put a new seal key first in FILE: from now on it seals, and all of them open.

    Copy the file to every worker before restarting the first one with it: a worker without the new
    key halts the models whose commits are sealed with it. An old key may be removed once its
    commits have expired and `lethe check` names no model that needs it.
    """
    del seal  # nothing else can be rotated: signing keys are trusted by name
    _print_seals(ctx, file, rotate_seal_file(file))


@key.command(short_help="Create a key of the HTTP API.")
@click.argument("file", type=_FILE)
@click.option("--name", required=True, metavar="N", help="Who uses it; the access log has it.")
@click.option(
    "--model", "models", multiple=True, metavar="PATTERN", default=("*",), show_default=True,
    help="A model that the key may touch, or a pattern (*, ?, [...]). An erasure needs *.",
)  # fmt: skip
@click.option(
    "--expires",
    type=parse_duration,
    metavar="DURATION",
    help="When it ends (24h, 90d). Default: never.",
)
@global_options
@click.pass_context
def issue(
    ctx: click.Context, /, *, file: Path, name: str, models: tuple[str, ...], expires: float | None
) -> None:
    """Add a key of the HTTP API to FILE, which only has its hash, and print the key once.

    `lethe serve --keys FILE` accepts it. To revoke a key, remove its line.
    """
    try:
        end = None if expires is None else datetime.now(UTC) + timedelta(seconds=expires)
    except OverflowError:
        raise click.UsageError("--expires lies after the year 9999") from None
    secret = issue_key(file, name, models, end)
    out = Output(as_json=ctx.ensure_object(Flags).json)
    out.document({"key": secret, "name": name, "models": models, "expires": end and rfc3339(end)})
    out.line(secret)


@key.command(short_help="Print a key's public half.")
@click.argument("file", type=_FILE, required=False)
@click.option(
    "--log", "model", metavar="MODEL",
    help="In the form that verifies proofs of MODEL's receipt log (C2SP signed notes).",
)  # fmt: skip
@global_options
@click.pass_context
def show(ctx: click.Context, /, *, file: Path | None, model: str | None) -> None:
    """Print the public key of the private key in FILE, in the form of a trusted-keys file.

    Without FILE: of the key that signs events here, LETHE_SIGNING_KEY or the data directory's own.
    """
    signer = read_signer(file) if file is not None else signer_of(prepare(ctx)[0])
    if model is None:
        return _print(ctx, signer)
    out, name = Output(as_json=ctx.ensure_object(Flags).json), log_name(signer, model)
    out.document({"log": name, "verifier_key": verifier_key(signer, name)})
    return out.line(verifier_key(signer, name))


def _print_seals(ctx: click.Context, file: Path, keys: SealKeys) -> None:
    out = Output(as_json=ctx.ensure_object(Flags).json)
    out.document({"file": str(file), "seals": keys.current, "opens": list(keys)})
    out.line(f"{file}: key {keys.current} seals; {counted(len(list(keys)), 'key')} in all")


def _print(ctx: click.Context, signer: Signer) -> None:
    out = Output(as_json=ctx.ensure_object(Flags).json)
    out.document({"key_id": signer.key_id, "public_key": signer.public_text})
    out.line(f"{signer.public_text}  # {signer.key_id}")
