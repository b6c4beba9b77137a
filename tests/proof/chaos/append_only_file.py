"""What `valkey-check-aof --fix` does, which the wheel does not bring: cut a file at its damage.

A server whose disk was full may leave a hole of zeros in its append-only file and go on behind it
(docs/operations.md, What the store may lose). It does not start on that file again; its log says
to cut it there.
"""

from __future__ import annotations

from pathlib import Path


def cut_at_damage(path: Path) -> int:
    """Cut a file after its last whole command or transaction; return the bytes that went."""
    data = path.read_bytes()
    sound = _sound(data)
    with path.open("r+b") as file:
        file.truncate(sound)
    return len(data) - sound


def _sound(data: bytes) -> int:
    """Return the end of the last command that is whole, and in no open transaction."""
    place, sound, in_transaction = 0, 0, False
    while place < len(data):
        try:
            name, place = _command(data, place)
        except ValueError:
            break
        in_transaction = name == b"MULTI" or (in_transaction and name != b"EXEC")
        if not in_transaction:
            sound = place
    return sound


def _command(data: bytes, place: int) -> tuple[bytes, int]:
    """Return a command's name and where it ends; ValueError if it is none, or is cut off."""
    if data[place : place + 1] == b"#":  # a comment: when it was written
        return b"", data.index(b"\n", place) + 1
    count, place = _number(data, place, b"*")
    words = []
    for _ in range(count):
        length, place = _number(data, place, b"$")
        words.append(data[place : place + length])
        place += length + 2
        if data[place - 2 : place] != b"\r\n":
            raise ValueError
    return words[0].upper(), place


def _number(data: bytes, place: int, sign: bytes) -> tuple[int, int]:
    end = data.index(b"\r\n", place, place + 32)
    if data[place : place + 1] != sign:
        raise ValueError
    return int(data[place + 1 : end]), end + 2
