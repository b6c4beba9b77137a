"""Every line of the table of forgeries: both verifiers say the same, and what the table says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proof.bundles.verifiers import NOT_READ, judged
from tests.support.audited import Made, real_run
from tests.support.bundles import Bundle, Forgery
from tests.support.forgeries import HARMLESS, SEEN, SIGNED, SIGNED_OR_NOT, UNPROVED, UNREADABLE
from tests.support.page_verifier import PageVerifier, page_verifier

# One worker runs the file: its tests share files and a process.
pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_both_verifiers")]

HOLDS, UNPROVEN, REFUSED = "no check failed", "NOT PROVED", "REFUSED"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    with real_run(tmp_path_factory.mktemp("audit")) as made:
        yield made


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageVerifier]:
    with page_verifier(tmp_path_factory.mktemp("page")) as verifier:
        yield verifier


@pytest.fixture(scope="module")
def trust(made: Made) -> str:
    return Path(made.path("trusted.pub")).read_text()


@pytest.fixture
def forged(tmp_path: Path) -> Path:
    return tmp_path / "forged"


def forge(made: Made, forgery: Forgery, path: Path) -> Path:
    bundle = Bundle.read(Path(made.path("late")))
    forgery.forge(bundle)
    bundle.write(path)
    return path


def by_name(forgeries: tuple[Forgery, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("forgery", forgeries, ids=lambda one: one.name)


@by_name(SIGNED_OR_NOT)
def test_a_history_that_contradicts_itself_is_refused_with_and_without_keys(
    made: Made, page: PageVerifier, trust: str, forged: Path, forgery: Forgery
) -> None:
    path = forge(made, forgery, forged)
    for keys in ("", trust):
        found = judged(page, path, keys)
        assert (found.verdict, found.results[forgery.check]) == (REFUSED, "FAILED"), found.why


@by_name(SIGNED)
def test_what_another_key_signed_is_refused(
    made: Made, page: PageVerifier, trust: str, forged: Path, forgery: Forgery
) -> None:
    path = forge(made, forgery, forged)
    found = judged(page, path, trust)
    assert (found.verdict, found.results[forgery.check]) == (REFUSED, "FAILED"), found.why
    assert judged(page, path).verdict != HOLDS


@by_name(SEEN)
def test_what_does_not_continue_from_a_checkpoint_is_refused(
    made: Made, page: PageVerifier, trust: str, forged: Path, forgery: Forgery
) -> None:
    path, seen = forge(made, forgery, forged), Path(made.path("late.seen"))
    for keys in ("", trust):
        found = judged(page, path, keys, seen)
        assert (found.verdict, found.results[forgery.check]) == (REFUSED, "FAILED"), found.why


@by_name(UNPROVED)
def test_what_no_trusted_key_vouches_for_is_never_more_than_not_proved(
    made: Made, page: PageVerifier, trust: str, forged: Path, forgery: Forgery
) -> None:
    found = judged(page, forge(made, forgery, forged), trust)
    assert found.verdict == UNPROVEN, found.why
    assert found.results[forgery.check] == UNPROVEN, found.why


@by_name(HARMLESS)
def test_the_same_history_in_other_words_is_proved(
    made: Made, page: PageVerifier, trust: str, forged: Path, forgery: Forgery
) -> None:
    path = forge(made, forgery, forged)
    assert judged(page, path, trust, Path(made.path("late.seen"))).verdict == HOLDS
    assert judged(page, path).verdict == UNPROVEN


@pytest.mark.parametrize(("name", "damage"), UNREADABLE, ids=[name for name, _ in UNREADABLE])
def test_a_damaged_file_is_read_by_neither(
    made: Made, page: PageVerifier, trust: str, forged: Path, name: str, damage: object
) -> None:
    assert callable(damage)
    Bundle.read(Path(made.path("late"))).write(forged)
    sound = forged.read_bytes()
    forged.write_bytes(damage(sound))
    assert forged.read_bytes() != sound, f"{name}: nothing was damaged"
    assert judged(page, forged, trust).verdict == NOT_READ


def test_true_histories_at_every_age_are_proved(made: Made, page: PageVerifier, trust: str) -> None:
    for name in ("early", "fork", "late"):
        assert judged(page, Path(made.path(name)), trust).verdict == HOLDS
    grown = judged(page, Path(made.path("late")), trust, Path(made.path("early.seen")))
    assert grown.verdict == HOLDS
