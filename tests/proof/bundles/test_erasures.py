"""The evidence of an erasure before both verifiers: they say the same, and what the table says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lethe.consumers.contract.signatures import Signer, read_signer
from tests.proof.bundles.test_both_verifiers import HOLDS, REFUSED, UNPROVEN, by_name
from tests.proof.bundles.verifiers import NOT_READ, judged
from tests.support.audited import Made
from tests.support.bundles import Bundle, Forgery, value_of
from tests.support.erased import ERASURES, erased_run
from tests.support.erasure_forgeries import FORGED, HARMLESS, LIES, SIGNED, UNPROVED, UNREADABLE
from tests.support.page_verifier import PageVerifier, page_verifier

# One worker runs the file: its tests share files and a process.
pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_erasures")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    with erased_run(tmp_path_factory.mktemp("erased")) as made:
        yield made


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageVerifier]:
    with page_verifier(tmp_path_factory.mktemp("page")) as verifier:
        yield verifier


@pytest.fixture(scope="module")
def trust(made: Made) -> str:
    return Path(made.path("trusted.pub")).read_text()


@pytest.fixture(scope="module")
def operator(made: Made) -> Signer:
    return read_signer(made.folder / "store" / "signing-key.pem")


def forge(made: Made, forgery: Forgery, path: Path, signer: Signer | None = None) -> Path:
    bundle = Bundle.read(Path(made.path("gone.own")))
    forgery.forge(bundle)
    if signer is not None:
        bundle.sign(signer)
    bundle.write(path)
    return path


@by_name(FORGED)
def test_evidence_that_contradicts_itself_is_refused_with_and_without_keys(
    made: Made, page: PageVerifier, trust: str, tmp_path: Path, forgery: Forgery
) -> None:
    path = forge(made, forgery, tmp_path / "forged")
    for keys in ("", trust):
        found = judged(page, path, keys)
        assert (found.verdict, found.results[forgery.check]) == (REFUSED, "FAILED"), found.why


@by_name(LIES)
def test_a_combined_receipt_that_contradicts_the_models_own_is_refused_whoever_signs_it(
    made: Made, page: PageVerifier, trust: str, operator: Signer, tmp_path: Path, forgery: Forgery
) -> None:
    found = judged(page, forge(made, forgery, tmp_path / "forged", operator), trust)
    assert (found.verdict, found.results[forgery.check]) == (REFUSED, "FAILED"), found.why
    assert found.results["signatures"] == "OK"


@by_name(SIGNED)
def test_what_another_key_signed_is_refused(
    made: Made, page: PageVerifier, trust: str, tmp_path: Path, forgery: Forgery
) -> None:
    path = forge(made, forgery, tmp_path / "forged")
    found = judged(page, path, trust)
    assert (found.verdict, found.results[forgery.check]) == (REFUSED, "FAILED"), found.why
    assert judged(page, path).verdict != HOLDS


@by_name(UNPROVED)
def test_what_no_trusted_key_vouches_for_is_never_more_than_not_proved(
    made: Made, page: PageVerifier, trust: str, tmp_path: Path, forgery: Forgery
) -> None:
    found = judged(page, forge(made, forgery, tmp_path / "forged"), trust)
    assert (found.verdict, found.results[forgery.check]) == (UNPROVEN, UNPROVEN), found.why


@by_name(HARMLESS)
def test_the_same_evidence_in_other_words_is_proved(
    made: Made, page: PageVerifier, trust: str, tmp_path: Path, forgery: Forgery
) -> None:
    path = forge(made, forgery, tmp_path / "forged")
    assert judged(page, path, trust).verdict == HOLDS
    assert judged(page, path).verdict == UNPROVEN


@pytest.mark.parametrize(("name", "damage"), UNREADABLE, ids=[name for name, _ in UNREADABLE])
def test_a_damaged_file_is_read_by_neither(
    made: Made, page: PageVerifier, trust: str, tmp_path: Path, name: str, damage: object
) -> None:
    assert callable(damage)
    Bundle.read(Path(made.path("gone.own"))).write(tmp_path / "forged")
    sound = (tmp_path / "forged").read_bytes()
    (tmp_path / "forged").write_bytes(damage(sound))
    assert (tmp_path / "forged").read_bytes() != sound, f"{name}: nothing was damaged"
    assert judged(page, tmp_path / "forged", trust).verdict == NOT_READ


@pytest.mark.parametrize(
    ("erasure", "verdict"),
    [("gone", HOLDS), ("again", HOLDS), ("stranger", HOLDS), ("partly", UNPROVEN)],
)
def test_true_evidence_is_proved_if_it_says_that_the_person_is_gone(
    made: Made, page: PageVerifier, trust: str, erasure: str, verdict: str
) -> None:
    for name, subject in ((erasure, "NOT CHECKED"), (f"{erasure}.own", "OK")):
        found = judged(page, Path(made.path(name)), trust)
        assert (found.verdict, found.results["subject"]) == (verdict, subject), found.why
    own, plain = (Bundle.read(Path(made.path(name))) for name in (f"{erasure}.own", erasure))
    [opening] = own.having("opening")
    assert opening["opening"]["subject_id"] == ERASURES[erasure]
    assert not plain.having("opening")
    assert not any(ERASURES[erasure].encode() in value_of(one) for one in plain.having("topic"))
