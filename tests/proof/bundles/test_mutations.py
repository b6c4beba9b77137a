"""Mutations of true bundles before both verifiers: they agree, and no harmful one passes."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proof.bundles.mutations import draw_mutant, same
from tests.proof.bundles.verifiers import judged
from tests.support import long_history
from tests.support.audited import Made, real_run
from tests.support.bundles import Bundle, strip
from tests.support.erased import erased_run
from tests.support.page_verifier import page_verifier

pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_mutations")]

MUTANTS = 2_400
OF_ERASURES = ("gone.own", "again", "stranger.own")
"""Evidence of erasures that are complete: of several models, and of none."""

HOLDS = "no check failed"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    with real_run(tmp_path_factory.mktemp("audit")) as made:
        yield made


@pytest.fixture(scope="module")
def erased(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    with erased_run(tmp_path_factory.mktemp("erased")) as made:
        yield made


def late_signed(made: Made, path: Path) -> Path:
    """The same run, had its workers begun to sign with version 3."""
    bundle = Bundle.read(Path(made.path("late")))
    for line in [*bundle.versions[:3], *bundle.receipts[:2]]:
        strip(line)
    bundle.write(path)
    return path


def test_of_2_400_mutations_no_harmful_one_passes_and_both_verifiers_agree(
    made: Made,
    erased: Made,
    tmp_path: Path,
) -> None:
    """Half of them of the histories of models, half of the evidence of erasures."""
    long_history.write(tmp_path / "busy", 12, 3)
    erased_trust = Path(erased.path("trusted.pub")).read_text()
    trust, seen = Path(made.path("trusted.pub")).read_text(), Path(made.path("late.seen"))
    true = (
        (Path(made.path("late")), trust, seen),
        (late_signed(made, tmp_path / "later"), trust, seen),
        (tmp_path / "busy", long_history.SIGNER.public_text, None),
        *((Path(erased.path(name)), erased_trust, None) for name in OF_ERASURES),
    )
    verdicts: Counter[tuple[bool, str]] = Counter()
    mutant = tmp_path / "mutant"
    with page_verifier(tmp_path) as page:
        for path, keys, before in true:
            assert judged(page, path, keys, before).verdict == HOLDS, path
        for seed in range(MUTANTS):
            path, keys, before = true[seed % len(true)]
            name, data = draw_mutant(path, seed)
            mutant.write_bytes(data)
            try:
                assert judged(page, mutant).verdict != HOLDS
                if before is not None:
                    judged(page, mutant, keys, before)
                found = judged(page, mutant, keys)
                assert found.verdict != HOLDS or same(path, mutant), found.why
            except Exception as error:
                error.add_note(f"seed {seed}: {name}")
                raise
            verdicts[seed % len(true) >= 3, found.verdict] += 1
    logging.getLogger(__name__).warning("%s", dict(verdicts))  # -o log_cli=true shows them
    assert sum(verdicts.values()) == MUTANTS
    assert len(verdicts) == 8, verdicts
    assert min(verdicts.values()) > MUTANTS / 200, verdicts  # each was met, and often
