"""Write docs/attacks.md from the table."""

from __future__ import annotations

from tests.proof.attacks.page import PAGE, page

PAGE.write_text(page(), encoding="utf-8")
