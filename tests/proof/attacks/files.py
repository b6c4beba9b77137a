"""Attacks by somebody who provides files: training data, transformers, keys, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import redis
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from lethe.consumers.contract.signatures import read_signer, read_trusted
from lethe.engine.errors import InvalidData
from lethe.engine.store.membership import every_model
from tests.proof.attacks.attack import Act, Attack, Trace
from tests.proof.attacks.world import World
from tests.support.command import Within

Write = Callable[[Path], object]
ROWS = "id,x,y\n" + "".join(f"u{i},{i % 7},{i % 5}\n" for i in range(30))
FIT = ("--id", "id", "--target", "y", "--kind", "linear", "--ridge", "1")


def registers(write: Write, said: str, *more: str, name: str = "evil", suffix: str = ".csv") -> Act:
    """Return what has the command register a file, which it must refuse in one line."""

    def act(world: World) -> Sequence[Trace]:
        path = world.folder / f"given{suffix}"
        path.unlink(missing_ok=True)
        write(path)
        beside = urlunsplit(urlsplit(world.url)._replace(path="/1"))
        with redis.Redis.from_url(beside) as client:
            client.flushdb()
            lethe = Within(world.folder / "data", LETHE_REDIS_URL=beside)
            answer = lethe("register", name, "--data", str(path), *FIT, *more, code=2)
            models = every_model(client)
            client.flushdb()
        lines = answer.err.strip().splitlines()
        return [
            Trace("what is said", lambda: said in " ".join(lines) or answer.err),
            Trace("a traceback", lambda: "Traceback" in answer.err, False),
            Trace("models", lambda: models, []),
        ]

    return act


def text(content: str) -> Write:
    return lambda path: path.write_text(content, encoding="utf-8")


def data(content: bytes) -> Write:
    return lambda path: path.write_bytes(content)


def table(**columns: Any) -> Write:
    def write(path: Path) -> None:
        pq.write_table(pa.table({"id": [f"u{i}" for i in range(30)], **columns}), path)

    return write


def cut_parquet(path: Path) -> None:
    table(x=list(range(30)), y=list(range(30)))(path)
    path.write_bytes(path.read_bytes()[:-20])


def bomb(path: Path) -> None:
    """Write a table of 250 KB that unpacks to 370 MB, a row group at a time."""
    columns = {name: pa.array(np.zeros(200_000)) for name in "abcdefghijklmnopqy"}
    part = pa.table({"id": pa.array(["u"] * 200_000), **columns})
    with pq.ParquetWriter(path, part.schema, compression="zstd") as writer:
        for _ in range(13):
            writer.write_table(part)


def key_file(content: bytes, mode: int, read: Callable[[Path], object]) -> Act:
    """Return what gives a key file that must be refused, without a word of what is in it."""

    def act(world: World) -> Sequence[Trace]:
        path = world.folder / "given.key"
        path.write_bytes(content)
        path.chmod(mode)
        try:
            read(path)
            said = "it was taken"
        except InvalidData as error:
            said = str(error)
        body = content.splitlines()[1].decode(errors="replace")
        return [
            Trace("it was refused", lambda: said != "it was taken"),
            Trace("it is quoted", lambda: body in said, False),
        ]

    return act


PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes([3] * 32)).private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
)

ATTACKS = (
    Attack(
        "an id twice in a file",
        "Registers a file with one id twice.",
        "It is refused.",
        registers(text(ROWS + "u1,3,3\n"), "the same id"),
    ),
    Attack(
        "a column twice",
        "Registers a CSV with one column twice.",
        "It is refused.",
        registers(text(ROWS.replace("id,x,y", "id,y,y")), "y"),
    ),
    Attack(
        "a blank id",
        "Registers a row whose id is blank.",
        "It is refused.",
        registers(text(ROWS + ",3,3\n"), "id"),
    ),
    Attack(
        "ids with a fraction",
        "Registers ids that became numbers with a fraction.",
        "It is refused, with the way out.",
        registers(
            lambda path: pq.write_table(
                pa.table({"id": np.arange(30.0), "x": np.arange(30.0), "y": np.arange(30.0)}), path
            ),
            "id",
            suffix=".parquet",
        ),
    ),
    Attack(
        "a value without end",
        "Registers a file with an infinite value.",
        "It is refused.",
        registers(text(ROWS + "u99,inf,3\n"), "x"),
    ),
    Attack(
        "a file that is cut",
        "Registers a Parquet file without its end.",
        "It is refused.",
        registers(cut_parquet, "Parquet", suffix=".parquet"),
    ),
    Attack(
        "a file that is none",
        "Registers bytes that are no Parquet.",
        "It is refused.",
        registers(data(b"PAR1" + bytes(200) + b"PAR1"), "cannot be read", suffix=".parquet"),
    ),
    Attack(
        "a file that unpacks to 370 MB",
        "Registers a Parquet file of 250 KB that unpacks to 370 MB.",
        "What is read is counted, and has a limit by the file's size.",
        registers(bomb, "unpack", suffix=".parquet"),
    ),
    Attack(
        "a CSV of no text",
        "Registers a CSV with bytes that are no UTF-8.",
        "It is refused.",
        registers(data(ROWS.encode() + b"u\xff\xfe,1,1\n"), "UTF-8"),
    ),
    Attack(
        "a name that is a step",
        "Registers a model whose name is a step in a path.",
        "Such a name is refused.",
        registers(text(ROWS), "..", name=".."),
    ),
    Attack(
        "a private key among public ones",
        "Names a private key as the list of trusted keys.",
        "It is refused, and not quoted.",
        key_file(PRIVATE, 0o600, read_trusted),
    ),
    Attack(
        "a signing key for all to read",
        "Names a signing key that others can read.",
        "It is refused, and not quoted.",
        key_file(PRIVATE, 0o644, read_signer),
    ),
    Attack(
        "keys that are none",
        "Names a list of trusted keys of other bytes.",
        "It is refused, and not quoted.",
        key_file(b"# keys\nAAAABBBB\n", 0o600, read_trusted),
    ),
)
