"""The checks of an audit about commits: their chain, and what is published compared with them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from lethe.consumers.audit.commits import CommitChain, CommitOpener
from lethe.consumers.audit.published.finding import Faults, Finding
from lethe.consumers.audit.published.history import History, ReceiptFact
from lethe.consumers.commits.commit import Commit
from lethe.consumers.commits.frame import Framed
from lethe.consumers.commits.publish import parameters_of
from lethe.consumers.commits.record import check_signature
from lethe.consumers.commits.recovery.counted import OpenRecord
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.engine.errors import Unauthenticated
from lethe.engine.merkle import leaf_hash

_CHAIN, _SIGNATURES, _CONTENTS = "commits", "commits: signatures", "commits: contents"


def commit_findings(
    chain: CommitChain,
    history: History,
    *,
    trusted: TrustedKeys | None,
    opener: CommitOpener | None,
    published: int | None,
) -> list[Finding]:
    """Return the findings on a model's commits; their records are read once more.

    Parameters
    ----------
    chain, history
        The commits that the log retains, and what was published.
    trusted
        The keys that must have signed commits; None: signatures are not checked.
    opener
        What opens them; None: only their open part is checked.
    published
        The offset below which every commit is published; None: all of them are.
    """
    if not chain.valid and not chain.faults:
        detail = "the log retains none; versions still name them by digest"
        return [Finding.passed_over(_CHAIN, detail)]
    published_records = [
        record for record in chain.valid.values() if published is None or record.offset < published
    ]
    signatures = None if trusted is None else _Signatures(trusted)
    contents = None
    if opener is not None:
        contents = _Contents(history, opener, {record.number for record in published_records})
    for record, framed in chain.framed() if signatures or contents else ():
        if signatures is not None:
            signatures.take(record, framed)
        if contents is not None:
            contents.take(record, framed)
    findings = [_chain(chain, history, published_records)]
    if signatures is not None:
        findings.append(signatures.finding(chain))
    if contents is not None:
        findings.append(contents.finding(chain))
    else:
        detail = "no seal key is available: name a file in LETHE_SEAL_KEY_FILE"
        findings.append(Finding.passed_over(_CONTENTS, detail))
    return findings


def _chain(chain: CommitChain, history: History, published: list[OpenRecord]) -> Finding:
    """Check that commits are dense and linked, and that versions name their commits."""
    faults = Faults()
    faults += chain.faults
    first, last = chain.first, chain.last
    for fact in published:
        number = fact.open.version
        if number is None:
            continue
        version = history.versions.get(number)
        if version is None:
            faults.add(f"commit {fact.number} makes version {number}, which was not published")
        elif (version.event.commit, version.event.commit_prev) != (fact.number, fact.open.prev):
            faults.add(
                f"commit {fact.number} makes version {number}, but that version names commit "
                f"{version.event.commit}, or another predecessor"
            )
    commit_of = {fact.open.version: fact.number for fact in chain.valid.values()}
    for number, version in sorted(history.versions.items()):
        retained = first is not None and version.event.commit >= first.number
        if retained and commit_of.get(number) != version.event.commit:
            faults.add(
                f"version {number} names commit {version.event.commit}, which did not make it"
            )
    if first is None or last is None:
        return Finding.of(_CHAIN, faults, "")
    void = f", {chain.void} void records" if chain.void else ""
    fine = f"commits {first.number} to {last.number}, dense and linked{void}"
    return Finding.of(_CHAIN, faults, fine)


@dataclass
class _Signatures:
    """Who signed the commits.

    A signed commit vouches for those before it through their links: commits older than the first
    signature may be unsigned.
    """

    trusted: TrustedKeys
    by_key: Counter[str] = field(default_factory=Counter)
    faults: Faults = field(default_factory=Faults)

    def take(self, record: OpenRecord, framed: Framed) -> None:
        """Check the signature of the next commit."""
        try:
            self.by_key[check_signature(framed, self.trusted)] += 1
        except Unauthenticated as error:
            if framed.signature or self.by_key:
                self.faults.add(f"commit {record.number} at {record.place}: {error}")

    def finding(self, chain: CommitChain) -> Finding:
        """Return what all signatures show."""
        if not self.by_key and chain.valid and not self.faults:
            self.faults.add(
                "no commit is signed although keys are trusted: they may be from anybody"
            )
        keys = ", ".join(f"{count} by key {key}" for key, count in sorted(self.by_key.items()))
        return Finding.of(_SIGNATURES, self.faults, keys)


@dataclass
class _Contents:
    """Versions, receipts and parameters compared with what commits seal, byte for byte.

    ``published`` are the numbers of the commits that must have been published.
    """

    history: History
    opener: CommitOpener
    published: set[int]
    faults: Faults = field(default_factory=Faults)
    sealed: set[bytes] = field(default_factory=set)
    unopened: int = 0
    newest: Commit | None = None
    opening: dict[str, int] | None = None

    def take(self, record: OpenRecord, framed: Framed) -> None:
        """Open the next commit, and compare it with what was published."""
        commit = self.opener.open(framed)
        if isinstance(commit, Commit):
            self._compare(commit)
        elif record.open.key in self.opener.seals:
            self.faults.add(f"commit {record.number}: {commit}")
        else:
            self.unopened += 1

    def _compare(self, commit: Commit) -> None:
        if commit.opening is not None:
            self.opening = dict(commit.opening)
        if commit.version is not None:
            self.newest = commit
        history = self.history
        leaves = [
            leaf_hash(value) for value in (*(a.value for a in commit.answers), *commit.repeats)
        ]
        self.sealed.update(leaves)
        if commit.number not in self.published:
            return
        finals = {leaf_hash(answer.value) for answer in commit.answers if answer.receipt.final}
        for leaf in leaves:
            expected = leaf in finals or not history.truncated  # others expire, and stay away
            if expected and leaf not in history.receipts:
                self.faults.add(f"a receipt of commit {commit.number} was not published as sealed")
        if commit.version is not None and leaf_hash(commit.version_value) not in history.values:
            self.faults.add(f"the version of commit {commit.number} was not published as sealed")

    def finding(self, chain: CommitChain) -> Finding:
        """Return what all commits show."""
        if not self.unopened:
            self._compare_parameters()
            self._find_strangers(chain)
        if self.unopened and not self.faults:
            count = f"{self.unopened} of {len(chain.valid)}"
            detail = f"{count} are sealed with keys that are not available here"
            return Finding.passed_over(_CONTENTS, detail)
        fine = "versions, receipts and parameters match what they seal, byte for byte"
        return Finding.of(_CONTENTS, self.faults, fine)

    def _compare_parameters(self) -> None:
        commit, tip, event = self.newest, self.history.tip, self.history.parameters
        if commit is None or commit.number not in self.published:
            return
        if tip is None or event is None or event.version != tip.event.version:
            return  # the check `parameters` reports it
        value = parameters_of(commit).value or b""
        if tip.event.version == commit.newest and leaf_hash(value) not in self.history.values:
            self.faults.add(f"parameters of version {commit.newest} are not those of its commit")

    def _find_strangers(self, chain: CommitChain) -> None:
        """Report receipts that no commit holds, unless their requests precede the model."""
        if chain.first is None or chain.first.number > 0:
            return
        for leaf, receipt in self.history.receipts.items():
            if leaf not in self.sealed and not precedes(receipt, self.opening):
                self.faults.add(f"the receipt at {receipt.place} is in no commit")


def precedes(receipt: ReceiptFact, opening: dict[str, int] | None) -> bool:
    """Return whether a receipt may be in no commit because its request precedes its model.

    ``opening`` None: the model is not opened yet, so every request so far does.
    """
    if receipt.status != "REJECTED" or opening is None:
        return receipt.status == "REJECTED"
    _, index, offset = receipt.source
    return any(name.endswith(f"/{index}") and offset < begin for name, begin in opening.items())
