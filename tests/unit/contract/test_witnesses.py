"""Checkpoints, cosignatures and policies of C2SP: read as their pages say, and nothing else."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.consumers.contract.signatures import Signer
from lethe.consumers.contract.tlog import NoteKey, checkpoint, log_name, read_head, verifier_key
from lethe.consumers.contract.witnesses import parse_policy
from lethe.engine.errors import InvalidData, Unauthenticated
from tests.support.witnesses import WITNESSES, cosigned, policy

SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
NAME = log_name(SIGNER, "eu/churn")
NOTE = checkpoint(SIGNER, NAME, 3, bytes(32))

OF_C2SP = """example.com/behind-the-sofa
20852163
CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

\u2014 example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
\u2014 witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==
"""  # noqa: E501
"""The example of c2sp.org/tlog-cosignature."""


def test_a_checkpoint_of_ours_is_read_back_and_its_log_has_signed_it() -> None:
    head = read_head(NOTE)
    assert (head.origin, head.size, head.root, head.model_id) == (NAME, 3, bytes(32), "eu/churn")
    key = NoteKey.parsed(verifier_key(SIGNER, NAME))
    assert key == NoteKey.of(SIGNER, NAME)
    assert key.has_signed(head)
    with pytest.raises(Unauthenticated):
        key.has_signed(read_head(NOTE.replace("\n3\n", "\n4\n")))


def test_the_example_of_c2sp_is_read() -> None:
    head = read_head(OF_C2SP)
    assert (head.size, head.model_id) == (20852163, "")
    [_, (witness, data)] = head.signatures
    assert witness == "witness.example.com/w1"
    assert int.from_bytes(data[4:12]) == 1679315147  # the time that the page names
    assert len(data) == 4 + 8 + 64


@pytest.mark.parametrize("seconds", [0, 1_679_315_147, (1 << 63) - 1])
def test_a_cosignature_is_of_its_time_and_of_the_whole_text(seconds: int) -> None:
    witness = WITNESSES[0]
    key, note = NoteKey.parsed(witness.vkey), witness.cosign(NOTE, seconds)
    assert key.cosigns
    assert key.has_signed(read_head(note))
    assert not key.has_signed(read_head(NOTE))
    assert not key.has_signed(read_head(WITNESSES[1].cosign(NOTE)))
    first, _, last = note.rpartition(" ")
    data = bytearray(base64.b64decode(last))
    for place in (11, 12, len(data) - 1):  # of the time, and of the signature
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(Unauthenticated):
            key.has_signed(read_head(f"{first} {base64.b64encode(changed).decode()}\n"))


def test_a_time_beyond_what_the_page_allows_is_refused() -> None:
    witness = WITNESSES[0]
    with pytest.raises(Unauthenticated):
        NoteKey.parsed(witness.vkey).has_signed(read_head(witness.cosign(NOTE, 1 << 63)))


@pytest.mark.parametrize(
    "note",
    [
        "", "x", NOTE[:-1], NOTE.replace("\n\n", "\n"), NOTE.replace("\n3\n", "\n03\n"),
        NOTE.replace("\n3\n", "\n-3\n"), NOTE.replace("\n3\n", "\nx\n"), NOTE + "x\n",
        NOTE.replace("AAAA", "AAA*", 1), NOTE.replace("lethe", "let\x00he", 1), NOTE + "\n",
        NOTE.replace("\u2014", "-"), cosigned(NOTE, 1).replace("=\n", "=\r\n"), NOTE * 400,
    ],
)  # fmt: skip
def test_what_is_no_checkpoint_is_refused(note: str) -> None:
    with pytest.raises(InvalidData):
        read_head(note)


@pytest.mark.parametrize("least", [1, 2, 3, "any", "all"])
def test_a_quorum_is_as_many_of_a_group_as_it_says(least: int | str) -> None:
    found = parse_policy(policy(least), "policy")
    needed = {"any": 1, "all": 3}.get(str(least)) or int(least)
    for witnesses in ((), (1,), (3,), (1, 2), (1, 2, 3)):
        head = read_head(cosigned(NOTE, *witnesses))
        assert found.check(head) is (len(witnesses) >= needed)
    repeated = read_head(cosigned(cosigned(NOTE, 1), 1))
    assert found.check(repeated) is (needed == 1)


def test_groups_of_groups_and_logs_are_what_c2sp_says() -> None:
    w1, w2, w3 = (one.vkey for one in WITNESSES)
    lines = (
        f"log {verifier_key(SIGNER, NAME)}\twss://x", f"witness a {w1}", f"witness b {w2}",
        f"  witness c {w3} https://c.example", "", "group ab any a b", "group all3 all ab c",
        "quorum all3", "",
    )  # fmt: skip
    text = "\n".join(lines)
    found = parse_policy(text, "policy")
    for witnesses, enough in (((1, 3), True), ((2, 3), True), ((1, 2), False), ((3,), False)):
        assert found.check(read_head(cosigned(NOTE, *witnesses))) is enough
    with pytest.raises(Unauthenticated):
        found.check(read_head(cosigned(checkpoint(SIGNER, "another", 3, bytes(32)), 1, 3)))


@pytest.mark.parametrize(
    "text",
    [
        "", "quorum x\n", "quorum none\nquorum none\n", "witness\n", "nothing\nquorum none\n",
        f"witness none {WITNESSES[0].vkey}\nquorum none\n",
        f"witness a {WITNESSES[0].vkey}\nwitness b {WITNESSES[0].vkey}\nquorum a\n",
        f"witness a {WITNESSES[0].vkey}\nwitness a {WITNESSES[1].vkey}\nquorum a\n",
        f"witness a {WITNESSES[0].vkey[:-4]}AAA=\nquorum a\n",
        f"witness a {verifier_key(SIGNER, NAME)}\nquorum a\n",
        f"log {WITNESSES[0].vkey}\nquorum none\n",
        policy(0), policy(4), policy("some"), policy().replace("w1 w2 w3", "w1 w1 w3"),
        policy().replace("w1 w2 w3", "w1 w2 w4"), policy().replace("2 w1 w2 w3", "any"),
        policy().replace("2 w1 w2 w3", ""), policy() + "group g any three w1\n",
    ],
)  # fmt: skip
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(InvalidData, match="policy"):
        parse_policy(text, "policy")
