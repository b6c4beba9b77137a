"""The checks of an audit about commits: their chain, and what is published against them."""

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
from lethe.engine.store.head import ModelConfig

_CHAIN, _SIGNATURES, _CONTENTS = "commits", "commits: signatures", "commits: contents"


@dataclass(frozen=True, slots=True)
class Sealing:
    """What opens commits; ``config`` is the model's, for commits that do not say it."""

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
    """Return what there is to say of a model's commits.

    Parameters
    ----------
    chain, history
        The commits that are retained, and what was published.
    trusted
        The keys that must have signed commits; None: it is not asked.
    sealing
        What opens them; None: their open part alone is looked at.
    published
        The offset below which all is published; None: all is.
    """
    if not chain.valid and not chain.faults:
        return [Finding.passed_over(_CHAIN, "the log retains none: versions name them, by digest")]
    told = [
        fact for fact in chain.valid.values() if published is None or fact.offset < published
    ]  # fmt: skip
    found = [_chain(chain, history, told)]
    if trusted is not None:
        by_key, faults = chain.signed(trusted)
        keys = ", ".join(f"{count} by key {key}" for key, count in sorted(by_key.items()))
        found.append(Finding.of(_SIGNATURES, faults, keys))
    if sealing is None:
        found.append(Finding.passed_over(_CONTENTS, "no seal key is named: LETHE_SEAL_KEY_FILE"))
    else:
        found.append(_contents(chain, history, sealing, told))
    return found


def _chain(chain: CommitChain, history: History, told: list[CommitFact]) -> Finding:
    """Check that commits are dense and linked, and that versions name those that made them."""
    faults = Faults()
    faults += chain.faults
    first, last = chain.first, chain.last
    for fact in told:
        number = fact.open.version
        if number is None:
            continue
        version = history.versions.get(number)
        if version is None:
            faults.add(f"commit {fact.number} makes version {number}, which was not published")
        elif (version.event.commit, version.event.commit_prev) != (fact.number, fact.open.prev):
            faults.add(
                f"commit {fact.number} makes version {number}, which names commit "
                f"{version.event.commit} as its own, or another one before it"
            )
    made = {fact.open.version: fact.number for fact in chain.valid.values()}
    for number, version in sorted(history.versions.items()):
        retained = first is not None and version.event.commit >= first.number
        if retained and made.get(number) != version.event.commit:
            faults.add(
                f"version {number} names commit {version.event.commit}, which did not make it"
            )
    if first is None or last is None:
        return Finding.of(_CHAIN, faults, "")
    void = f", {chain.void} void records" if chain.void else ""
    fine = f"commits {first.number} to {last.number}, each linked and dense{void}"
    return Finding.of(_CHAIN, faults, fine)


@dataclass
class _Contents:
    """What was found as commits were opened, one after another."""

    history: History
    faults: Faults
    sealed: set[bytes]
    unopened: int = 0
    newest: Commit | None = None
    opening: dict[str, int] | None = None

    def take(self, fact: CommitFact, commit: Commit, *, told: bool) -> None:
        """Compare a commit with what was published."""
        if commit.opening is not None:
            self.opening = dict(commit.opening)
        if commit.version is not None:
            self.newest = commit
        history = self.history
        answers = [answer.value for answer in commit.answers]
        leaves = [leaf_hash(value) for value in (*answers, *commit.repeats)]
        self.sealed.update(leaves)
        if not told:
            return
        finals = {leaf_hash(one.value) for one in commit.answers if one.receipt.final}
        for leaf in leaves:
            kept = leaf in finals or not history.truncated  # others leave with age, and stay away
            if kept and leaf not in history.receipts:
                self.faults.add(f"a receipt of commit {fact.number} was not published as it says")
        if commit.version is not None and leaf_hash(commit.version_value) not in history.values:
            self.faults.add(f"the version of commit {fact.number} was not published as it says")


def _contents(
    chain: CommitChain, history: History, sealing: Sealing, told: list[CommitFact]
) -> Finding:
    """Compare versions, receipts and parameters with what commits seal, byte for byte."""
    found = _Contents(history, Faults(), set())
    numbers = {fact.number for fact in told}
    for fact, commit in chain.opened(sealing.seals, sealing.config):
        if not isinstance(commit, LetheError):
            found.take(fact, commit, told=fact.number in numbers)
        elif fact.open.key in sealing.seals:
            found.faults.add(f"commit {fact.number}: {commit}")
        else:
            found.unopened += 1
    if not found.unopened:
        _parameters(found, numbers)
        _strangers(found, chain)
    if found.unopened and not found.faults:
        detail = f"{found.unopened} of {len(chain.valid)} are sealed with keys that are not here"
        return Finding.passed_over(_CONTENTS, detail)
    fine = "versions, receipts and parameters are those that they seal, byte for byte"
    return Finding.of(_CONTENTS, found.faults, fine)


def _parameters(found: _Contents, told: set[int]) -> None:
    commit = found.newest
    if commit is None or commit.number not in told:
        return
    tip, event = found.history.tip, found.history.parameters
    if tip is None or event is None or event.version != tip.event.version:
        return  # the check of parameters says so
    value = parameters_of(commit).value or b""
    if tip.event.version == commit.newest and leaf_hash(value) not in found.history.values:
        found.faults.add(f"parameters of version {commit.newest} are not those of its commit")


def _strangers(found: _Contents, chain: CommitChain) -> None:
    """Look for receipts that no commit says: only requests from before the model have such."""
    first = chain.first
    if first is None or first.number > 0:
        return
    for leaf, receipt in found.history.receipts.items():
        if leaf not in found.sealed and not precedes(receipt, found.opening):
            found.faults.add(f"the receipt at {receipt.place} is in no commit")


def precedes(receipt: ReceiptFact, opening: dict[str, int] | None) -> bool:
    """Return whether a receipt may be in no commit: its request came before its model.

    ``opening`` None: the model is not opened yet, so all requests until now did.
    """
    if receipt.status != "REJECTED" or opening is None:
        return receipt.status == "REJECTED"
    _, index, offset = receipt.source
    return any(name.endswith(f"/{index}") and offset < begin for name, begin in opening.items())
