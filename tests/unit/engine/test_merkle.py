"""The Merkle tree is that of RFC 9162: known roots, and proofs that prove one thing only."""

import hashlib
import random
from itertools import pairwise

import pytest

from lethe.engine.merkle import (
    Frontier,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    root_of,
    verify_consistency,
    verify_inclusion,
)

# The entries and roots that implementations of Certificate Transparency are tested with.
ENTRIES = [
    bytes.fromhex(entry)
    for entry in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = (
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)
SIZES = range(1, 41)
LEAVES = [leaf_hash(f"entry {i}".encode()) for i in range(SIZES.stop)]


def recursive_root(leaves: list[bytes]) -> bytes:
    """MTH of RFC 9162, section 2.1.1, as it is written there; an oracle of its own."""
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return leaves[0]
    k = 1
    while 2 * k < len(leaves):
        k *= 2
    left, right = recursive_root(leaves[:k]), recursive_root(leaves[k:])
    return hashlib.sha256(b"\x01" + left + right).digest()


@pytest.mark.parametrize("size", range(len(ROOTS)))
def test_roots_are_those_of_certificate_transparency(size: int) -> None:
    leaves = [leaf_hash(entry) for entry in ENTRIES[:size]]

    assert root_of(leaves).hex() == ROOTS[size]
    assert recursive_root(leaves).hex() == ROOTS[size]


def test_a_frontier_has_the_root_of_all_leaves_however_they_were_appended() -> None:
    one_by_one = Frontier()
    for size in range(len(LEAVES) + 1):
        assert one_by_one.root == recursive_root(LEAVES[:size])
        for split in range(size + 1):
            in_two = Frontier().appended(LEAVES[:split]).appended(LEAVES[split:size])
            assert in_two == one_by_one
        if size < len(LEAVES):
            one_by_one = one_by_one.appended([LEAVES[size]])


def test_a_frontier_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="peaks"):
        Frontier(3, (LEAVES[0],))
    with pytest.raises(ValueError, match="bytes"):
        Frontier(1, (b"short",))


@pytest.mark.parametrize("size", SIZES)
def test_every_inclusion_proof_holds_for_its_own_entry_place_and_tree_only(size: int) -> None:
    leaves, root = LEAVES[:size], root_of(LEAVES[:size])
    for index, leaf in enumerate(leaves):
        proof = inclusion_proof(leaves, index)

        assert verify_inclusion(leaf, index, size, proof, root)
        assert not verify_inclusion(leaf_hash(b"another"), index, size, proof, root)
        assert not verify_inclusion(leaf, index, size, proof, leaf_hash(b"another"))
        for other in {-1, *range(size + 2)} - {index}:
            assert not verify_inclusion(leaf, other, size, proof, root)
        for altered in alterations(proof):
            assert not verify_inclusion(leaf, index, size, altered, root)


@pytest.mark.parametrize("second", SIZES)
def test_every_consistency_proof_holds_for_its_own_two_trees_only(second: int) -> None:
    leaves, second_root = LEAVES[:second], root_of(LEAVES[:second])
    for first in range(1, second):
        first_root = root_of(leaves[:first])
        proof = consistency_proof(leaves, first)

        assert verify_consistency(first, second, first_root, second_root, proof)
        assert not verify_consistency(first, second, LEAVES[-1], second_root, proof)
        assert not verify_consistency(first, second, first_root, LEAVES[-1], proof)
        assert not verify_consistency(second, first, second_root, first_root, proof)
        for other in set(range(second)) - {first}:
            assert not verify_consistency(other, second, first_root, second_root, proof)
        for altered in alterations(proof):
            assert not verify_consistency(first, second, first_root, second_root, altered)


def test_a_log_is_consistent_with_itself_and_with_the_empty_one() -> None:
    root, nothing = root_of(LEAVES), root_of([])
    size = len(LEAVES)

    assert consistency_proof(LEAVES, size) == consistency_proof(LEAVES, 0) == ()
    assert verify_consistency(size, size, root, root, ())
    assert verify_consistency(0, size, nothing, root, ())
    assert verify_consistency(0, 0, nothing, nothing, ())
    assert not verify_consistency(size, size, root, LEAVES[0], ())
    assert not verify_consistency(size, size, root, root, (LEAVES[0],))
    assert not verify_consistency(0, size, LEAVES[0], root, ())
    assert not verify_consistency(0, 0, nothing, root, ())


@pytest.mark.parametrize("position", range(7))
def test_a_log_whose_past_was_altered_has_no_proof_from_its_old_head(position: int) -> None:
    rewritten = [*LEAVES[:position], leaf_hash(b"forged"), *LEAVES[position + 1 : 20]]
    old_root, new_root = root_of(LEAVES[:7]), root_of(rewritten)

    proof = consistency_proof(rewritten, 7)

    assert not verify_consistency(7, 20, old_root, new_root, proof)


def test_proofs_for_what_is_not_there_are_refused() -> None:
    with pytest.raises(ValueError, match="no leaf"):
        inclusion_proof(LEAVES[:3], 3)
    with pytest.raises(ValueError, match="never had"):
        consistency_proof(LEAVES[:3], 4)


def alterations(proof: tuple[bytes, ...]) -> list[tuple[bytes, ...]]:
    """Return proofs that differ from one: a flipped bit, a hash less or more, two exchanged."""
    draw = random.Random(len(proof))
    altered: list[tuple[bytes, ...]] = [(*proof, LEAVES[-1]), (LEAVES[-1], *proof)]
    for at, hashed in enumerate(proof):
        bit = draw.randrange(256)
        flipped = bytearray(hashed)
        flipped[bit // 8] ^= 1 << bit % 8
        altered.append((*proof[:at], bytes(flipped), *proof[at + 1 :]))
        altered.append((*proof[:at], *proof[at + 1 :]))
    for at, (left, right) in enumerate(pairwise(proof)):
        if left != right:
            altered.append((*proof[:at], right, left, *proof[at + 2 :]))
    return altered
