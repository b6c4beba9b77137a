"""Which witnesses must have seen a tree head: a policy of c2sp.org/tlog-policy.

Witnesses cosign a checkpoint of a log if it continues from the last one that they have seen. Where
enough of them have cosigned what a reader is shown, nobody is shown another history.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lethe.consumers.contract.signatures import read_public_text
from lethe.consumers.contract.tlog import NoteKey, SignedHead
from lethe.engine.errors import InvalidData, Unauthenticated

NO_QUORUM = "none"
"""In place of the name of a witness or a group: no cosignature is required."""
MOST_LINES = 1_000


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy.

    Attributes
    ----------
    logs
        Keys of logs, one of which must have signed a checkpoint; empty: any log of ours.
    witnesses
        The keys of witnesses, by the names that they have in the policy.
    groups
        Of each group, how many of which members are enough.
    quorum
        The witness or group that is enough; "none": no cosignature is required.
    """

    quorum: str
    logs: tuple[NoteKey, ...] = ()
    witnesses: Mapping[str, NoteKey] = field(default_factory=dict)
    groups: Mapping[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)

    def check(self, head: SignedHead) -> bool:
        """Return whether enough witnesses have cosigned a checkpoint.

        Raises
        ------
        Unauthenticated
            A signature that names a known key is not its own, or no known log has signed it.
        """
        logs = [one for one in self.logs if one.name == head.origin and one.has_signed(head)]
        if self.logs and not logs:
            raise Unauthenticated("no log of the policy has signed it")
        seen = {name for name, key in self.witnesses.items() if key.has_signed(head)}
        return self._holds(self.quorum, seen)

    def _holds(self, name: str, seen: set[str]) -> bool:
        if name == NO_QUORUM or name in seen:
            return True
        least, members = self.groups.get(name, (1, ()))
        return sum(self._holds(member, seen) for member in members) >= least


def read_policy(path: Path) -> Policy:
    """Read a policy from a file.

    Raises
    ------
    InvalidData
        It cannot be read, or is none.
    """
    return parse_policy(read_public_text(path), str(path))


def parse_policy(text: str, what: str) -> Policy:
    """Return the policy in a text; ``what`` names it in errors.

    Raises
    ------
    InvalidData
        It is none.
    """
    parser = _Parser()
    lines = text.split("\n")
    for number, line in enumerate(lines[:MOST_LINES], start=1):
        words = line.replace("\t", " ").split()
        if not words or words[0].startswith("#"):
            continue
        try:
            parser.add(words[0], words[1:])
        except (InvalidData, ValueError, KeyError) as error:
            raise InvalidData(f"{what}, line {number}: {error}") from None
    if parser.quorum is None or len(lines) > MOST_LINES:
        raise InvalidData(f"{what}: a policy has one line `quorum`, and at most {MOST_LINES} lines")
    return Policy(parser.quorum, tuple(parser.logs), parser.witnesses, parser.groups)


class _Parser:
    def __init__(self) -> None:
        self.logs: list[NoteKey] = []
        self.witnesses: dict[str, NoteKey] = {}
        self.groups: dict[str, tuple[int, tuple[str, ...]]] = {}
        self.quorum: str | None = None
        self._members: set[str] = set()

    def add(self, kind: str, words: Sequence[str]) -> None:
        """Add a line; an error says what is wrong with it."""
        lines: Mapping[str, Callable[[Sequence[str]], None]] = {
            "log": self._log, "witness": self._witness, "group": self._group,
            "quorum": self._quorum,
        }  # fmt: skip
        if kind not in lines:
            raise ValueError(f"{kind[:40]!r} is not a keyword of a policy")
        lines[kind](words)

    def _log(self, words: Sequence[str]) -> None:
        self.logs.append(self._new_key(words, self.logs, cosigns=False))

    def _witness(self, words: Sequence[str]) -> None:
        name = self._new_name(words)
        self.witnesses[name] = self._new_key(words[1:], [*self.witnesses.values()], cosigns=True)

    def _group(self, words: Sequence[str]) -> None:
        name, (least, *members) = self._new_name(words), words[1:]
        for member in members:
            if member not in self.witnesses and member not in self.groups:
                raise ValueError(f"{member[:40]!r} is not defined above")
            if member in self._members:
                raise ValueError(f"{member[:40]!r} is listed as a member twice")
            self._members.add(member)
        count = {"all": len(members), "any": 1}.get(least) or int(least)
        if not members or not 1 <= count <= len(members):
            raise ValueError(f"a group cannot require {least[:40]!r} of {len(members)} members")
        self.groups[name] = (count, tuple(members))

    def _quorum(self, words: Sequence[str]) -> None:
        [name] = words
        if self.quorum is not None:
            raise ValueError("there are two quorums")
        if name != NO_QUORUM and name not in self.witnesses and name not in self.groups:
            raise ValueError(f"{name[:40]!r} is not defined above")
        self.quorum = name

    def _new_name(self, words: Sequence[str]) -> str:
        name = words[0] if words else ""
        if name in ("", NO_QUORUM) or name in self.witnesses or name in self.groups:
            raise ValueError(f"{name[:40]!r} is missing, reserved or already taken")
        return name

    def _new_key(
        self, words: Sequence[str], others: Sequence[NoteKey], *, cosigns: bool
    ) -> NoteKey:
        if not 1 <= len(words) <= 2:
            raise ValueError("a key, and at most an address, are expected")
        key = NoteKey.parsed(words[0])
        if key.cosigns != cosigns:
            raise ValueError("it is a key of the other kind: a witness cosigns, a log signs")
        if any(one.public == key.public for one in others):
            raise ValueError("the same key is there twice")
        return key
