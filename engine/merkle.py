"""Merkle trees as in RFC 9162, section 2.1: roots, proofs, and the check of proofs.

An append-only log is summarised by its tree head: its size and the root of the tree over its
entries. An inclusion proof shows that an entry is in the tree of a head; a consistency proof
shows that the tree of a later head begins with that of an earlier one, so that nothing was taken
out or altered in between. Both hold O(log n) hashes.

A writer needs only the `Frontier`: the roots of the full subtrees, O(log n) hashes. A prover
needs the hashes of all leaves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

HASH_BYTES = 32
_LEAF = b"\x00"
_NODE = b"\x01"


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of a log entry."""
    return hashlib.sha256(_LEAF + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return hashlib.sha256(_NODE + left + right).digest()


@dataclass(frozen=True, slots=True)
class Frontier:
    """A log as its writer needs it: its size, and the roots of its full subtrees.

    Attributes
    ----------
    size
        Number of entries.
    peaks
        Roots of the full subtrees that the log is made of, the largest (oldest) first: one for
        each bit that is set in ``size``.
    """

    size: int = 0
    peaks: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 0 or len(self.peaks) != self.size.bit_count():
            raise ValueError(f"a log of {self.size} entries does not have {len(self.peaks)} peaks")
        if any(len(peak) != HASH_BYTES for peak in self.peaks):
            raise ValueError(f"a hash does not have {HASH_BYTES} bytes")

    def appended(self, leaves: Iterable[bytes]) -> Frontier:
        """Return the frontier with further leaf hashes. Cost O(1) hashes each, on average."""
        size, peaks = _append(self.size, list(self.peaks), leaves)
        return Frontier(size, tuple(peaks))

    @property
    def root(self) -> bytes:
        """The root of the tree; of an empty log the hash of nothing."""
        return _root(self.peaks)


def root_of(leaves: Sequence[bytes]) -> bytes:
    """Return the root over leaf hashes. Cost O(n)."""
    _, peaks = _append(0, [], leaves)
    return _root(peaks)


def _append(size: int, peaks: list[bytes], leaves: Iterable[bytes]) -> tuple[int, list[bytes]]:
    """Return the size and the peaks of a log with further leaf hashes; ``peaks`` is used up."""
    for leaf in leaves:
        hashed, full = leaf, size
        while full & 1:
            hashed = node_hash(peaks.pop(), hashed)
            full >>= 1
        peaks.append(hashed)
        size += 1
    return size, peaks


def _root(peaks: Sequence[bytes]) -> bytes:
    if not peaks:
        return hashlib.sha256().digest()
    *older, root = peaks
    for peak in reversed(older):
        root = node_hash(peak, root)
    return root


def inclusion_proof(leaves: Sequence[bytes], index: int) -> tuple[bytes, ...]:
    """Return the proof that leaf ``index`` is in the tree over ``leaves``. Cost O(n).

    Raises
    ------
    ValueError
        There is no such leaf.
    """
    if not 0 <= index < len(leaves):
        raise ValueError(f"there is no leaf {index} among {len(leaves)}")
    if len(leaves) == 1:
        return ()
    split = _split(len(leaves))
    left, right = leaves[:split], leaves[split:]
    if index < split:
        return (*inclusion_proof(left, index), root_of(right))
    return (*inclusion_proof(right, index - split), root_of(left))


def consistency_proof(leaves: Sequence[bytes], first: int) -> tuple[bytes, ...]:
    """Return the proof that the tree over ``leaves`` begins with its first ``first`` leaves.

    It is empty if there is nothing to prove: ``first`` is 0 or the number of leaves.

    Raises
    ------
    ValueError
        There are fewer leaves.
    """
    if not 0 <= first <= len(leaves):
        raise ValueError(f"a log of {len(leaves)} entries never had {first}")
    return () if first == 0 else _subproof(leaves, first, whole=True)


def _subproof(leaves: Sequence[bytes], first: int, *, whole: bool) -> tuple[bytes, ...]:
    """Return SUBPROOF of RFC 9162; ``whole``: the verifier knows the root of these leaves."""
    if first == len(leaves):
        return () if whole else (root_of(leaves),)
    split = _split(len(leaves))
    left, right = leaves[:split], leaves[split:]
    if first <= split:
        return (*_subproof(left, first, whole=whole), root_of(right))
    return (*_subproof(right, first - split, whole=False), root_of(left))


def _split(n: int) -> int:
    """Return the largest power of two below ``n``."""
    return 1 << ((n - 1).bit_length() - 1)


def verify_inclusion(
    leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes
) -> bool:
    """Return whether a proof shows that ``leaf`` is entry ``index`` of the tree (RFC 9162 2.1.3.2).

    Parameters
    ----------
    leaf
        The leaf's hash.
    index, size
        Its position, and the size of the tree.
    proof
        What `inclusion_proof` returned.
    root
        The root of the tree.
    """
    if not 0 <= index < size:
        return False
    node, last, computed = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return False
        if node & 1 or node == last:
            computed = node_hash(sibling, computed)
            while node and not node & 1:
                node, last = node >> 1, last >> 1
        else:
            computed = node_hash(computed, sibling)
        node, last = node >> 1, last >> 1
    return last == 0 and computed == root


def verify_consistency(
    first: int, second: int, first_root: bytes, second_root: bytes, proof: Sequence[bytes]
) -> bool:
    """Return whether a proof shows that a tree begins with an earlier one (RFC 9162 2.1.4.2).

    Parameters
    ----------
    first, second
        Sizes of the earlier and the later tree.
    first_root, second_root
        Their roots.
    proof
        What `consistency_proof` returned; empty if the sizes are equal or the first is 0.
    """
    if not 0 <= first <= second:
        return False
    if first == 0:
        return not proof and first_root == root_of(()) and (second > 0 or second_root == first_root)
    if first == second:
        return not proof and first_root == second_root
    path = list(proof)
    if first & (first - 1) == 0:  # a full tree: its root is a node of the later one
        path.insert(0, first_root)
    node, last = first - 1, second - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    if not path:
        return False
    old = new = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if node & 1 or node == last:
            old, new = node_hash(sibling, old), node_hash(sibling, new)
            while node and not node & 1:
                node, last = node >> 1, last >> 1
        else:
            new = node_hash(new, sibling)
        node, last = node >> 1, last >> 1
    return last == 0 and old == first_root and new == second_root
