"""The checks of an audit about commits: their chain, and what is published compared with them."""

from __future__ import annotations

from dataclasses import dataclass

from lethe.consumers.audit.commits import CommitChain, CommitFact
from lethe.consumers.audit.finding import Faults, Finding
from lethe.consumers.audit.history import History, ReceiptFact
from lethe.consumers.commits.commit import Commit
from lethe.consumers.commits.publish import parameters_of
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.engine.errors import LetheError
from lethe.engine.merkle import leaf_hash
from lethe.engine.store.state import ModelConfig

_CHAIN, _SIGNATURES, _CONTENTS = "commits", "commits: signatures", "commits: contents"


@dataclass(frozen=True, slots=True)
class Sealing:
    """What opens commits; ``config`` is the model's, for commits that do not carry one."""

    seals: SealKeys
    config: ModelConfig | None = None


def commit_findings(
    chain: CommitChain,
    history: History,
    *,
    trusted: TrustedKeys | None,
    sealing: Sealing | None,
    published: int | None,
) -> list[Finding]:
    """Return the findings on a model's commits.

    Parameters
    ----------
    chain, history
        The commits that the log retains, and what was published.
    trusted
        The keys that must have signed commits; None: signatures are not checked.
    sealing
        What opens them; None: only their open part is checked.
    published
        The offset below which every commit is published; None: all of them are.
    """
    if not chain.valid and not chain.faults:
        detail = "the log retains none; versions still name them by digest"
        return [Finding.passed_over(_CHAIN, detail)]
    published_facts = [
        fact for fact in chain.valid.values() if published is None or fact.offset < published
    ]
    findings = [_chain(chain, history, published_facts)]
    if trusted is not None:
        by_key, faults = chain.signed(trusted)
        keys = ", ".join(f"{count} by key {key}" for key, count in sorted(by_key.items()))
        findings.append(Finding.of(_SIGNATURES, faults, keys))
    if sealing is None:
        detail = "no seal key is available: name a file in LETHE_SEAL_KEY_FILE"
        findings.append(Finding.passed_over(_CONTENTS, detail))
    else:
        findings.append(_contents(chain, history, sealing, published_facts))
    return findings


def _chain(chain: CommitChain, history: History, published: list[CommitFact]) -> Finding:
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
class _Contents:
    """What opening the commits, one after another, has shown so far."""

    history: History
    faults: Faults
    sealed: set[bytes]
    unopened: int = 0
    newest: Commit | None = None
    opening: dict[str, int] | None = None

    def take(self, fact: CommitFact, commit: Commit, *, published: bool) -> None:
        """Compare a commit with what was published."""
        if commit.opening is not None:
            self.opening = dict(commit.opening)
        if commit.version is not None:
            self.newest = commit
        history = self.history
        answers = [answer.value for answer in commit.answers]
        leaves = [leaf_hash(value) for value in (*answers, *commit.repeats)]
        self.sealed.update(leaves)
        if not published:
            return
        finals = {leaf_hash(answer.value) for answer in commit.answers if answer.receipt.final}
        for leaf in leaves:
            expected = leaf in finals or not history.truncated  # others expire, and stay away
            if expected and leaf not in history.receipts:
                self.faults.add(f"a receipt of commit {fact.number} was not published as sealed")
        if commit.version is not None and leaf_hash(commit.version_value) not in history.values:
            self.faults.add(f"the version of commit {fact.number} was not published as sealed")


def _contents(
    chain: CommitChain, history: History, sealing: Sealing, published: list[CommitFact]
) -> Finding:
    """Compare versions, receipts and parameters with what commits seal, byte for byte."""
    contents = _Contents(history, Faults(), set())
    numbers = {fact.number for fact in published}
    for fact, commit in chain.opened(sealing.seals, sealing.config):
        if not isinstance(commit, LetheError):
            contents.take(fact, commit, published=fact.number in numbers)
        elif fact.open.key in sealing.seals:
            contents.faults.add(f"commit {fact.number}: {commit}")
        else:
            contents.unopened += 1
    if not contents.unopened:
        _parameters(contents, numbers)
        _strangers(contents, chain)
    if contents.unopened and not contents.faults:
        count = f"{contents.unopened} of {len(chain.valid)}"
        detail = f"{count} are sealed with keys that are not available here"
        return Finding.passed_over(_CONTENTS, detail)
    fine = "versions, receipts and parameters match what they seal, byte for byte"
    return Finding.of(_CONTENTS, contents.faults, fine)


def _parameters(contents: _Contents, published: set[int]) -> None:
    commit, history = contents.newest, contents.history
    if commit is None or commit.number not in published:
        return
    tip, event = history.tip, history.parameters
    if tip is None or event is None or event.version != tip.event.version:
        return  # the check `parameters` reports it
    value = parameters_of(commit).value or b""
    if tip.event.version == commit.newest and leaf_hash(value) not in history.values:
        contents.faults.add(f"parameters of version {commit.newest} are not those of its commit")


def _strangers(contents: _Contents, chain: CommitChain) -> None:
    """Report receipts that no commit holds, unless their requests precede the model."""
    first = chain.first
    if first is None or first.number > 0:
        return
    for leaf, receipt in contents.history.receipts.items():
        if leaf not in contents.sealed and not precedes(receipt, contents.opening):
            contents.faults.add(f"the receipt at {receipt.place} is in no commit")


def precedes(receipt: ReceiptFact, opening: dict[str, int] | None) -> bool:
    """Return whether a receipt may be in no commit because its request precedes its model.

    ``opening`` None: the model is not opened yet, so every request so far does.
    """
    if receipt.status != "REJECTED" or opening is None:
        return receipt.status == "REJECTED"
    _, index, offset = receipt.source
    return any(name.endswith(f"/{index}") and offset < begin for name, begin in opening.items())
