"""docs/attacks.md, from the table."""

from __future__ import annotations

from pathlib import Path

from tests.proof.attacks.attack import Attack
from tests.proof.attacks.table import PLACES, Place

PAGE = Path(__file__).resolve().parents[3] / "docs" / "attacks.md"

_INTRO = """\
# Attacks

This page is for those who judge how far to trust Lethe: {count} attacks, by where the attacker
stands, with what stops each. [threat-model.md](threat-model.md) says what each of these places may
do at all, and [security.md](security.md) how to restrict it.

`tests/proof/attacks` carries out every line against two models in two namespaces, while requests of
others are under way, and `python -m tests.proof.attacks` writes this page from its table. After
each attack one judge checks that it took place, and then that

- every request and erasure that was rightfully sent has the outcome that it must have, and nobody
  else's had any effect;
- the live rows of each model, and their values, are those that these requests leave, and the
  parameters are those of retraining on them;
- the versions form one chain, and no model is halted;
- the HTTP index, `lethe receipt`, subscribers and audits, with trusted keys, believe nothing that
  was forged;
- deleted rows and erased people stay away, and an old request gets its old receipt;
- no secret was printed, and neither time, memory nor keys of the store were used up.

Of {count} attacks, {stopped} get nothing. The other {rest}, marked *not stopped*, get a part of
what they want: all but one stop a model, erasures or all workers, until a person does what is
named. None of them loses a deletion, applies one twice, brings back a deleted row by its id, or
makes a reader with trusted keys believe what is forged.

## What is not stopped, and why
"""


def page() -> str:
    """Return the page."""
    attacks = [attack for place in PLACES for attack in place.attacks]
    rest = sum(attack.not_stopped for attack in attacks)
    counts = {"count": len(attacks), "stopped": len(attacks) - rest, "rest": rest}
    parts = [_INTRO.format(**counts), *map(remaining, PLACES)]
    for place in PLACES:
        head = f"\n## {place.title}\n\n| attack | what is tried | what stops it |\n|---|---|---|\n"
        parts.append(head + "".join(map(line_of, place.attacks)))
    return "".join(parts)


def remaining(place: Place) -> str:
    """Return the paragraph on what is not stopped of a place; nothing if all is."""
    count = sum(attack.not_stopped for attack in place.attacks)
    if bool(count) != bool(place.remains):
        raise ValueError(f"{place.title}: {count} attacks are not stopped")
    return f"\n**{place.title}** ({count}).\n{place.remains}" if count else ""


def line_of(attack: Attack) -> str:
    """Return the line of an attack."""
    mark = "*Not stopped.* " if attack.not_stopped else ""
    cells = (attack.name, attack.tries, mark + attack.stopped_by)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
