"""The lines that docs/preprocessing.md shows."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from lethe.consumers.registration.table.preprocess_file import read_preprocess_file
from lethe.engine.preprocess.input.columns import Date, Numeric, OneHot, Ordinal, TargetEncode
from lethe.engine.preprocess.input.derived import Product

PAGE = Path(__file__).resolve().parents[4] / "docs" / "preprocessing.md"


def test_the_page_s_lines_run_and_forget_row_1(tmp_path: Path) -> None:
    text = PAGE.read_text()
    script = tmp_path / "page.py"
    script.write_text("\n".join(line[4:] for line in text.splitlines() if line[:4] == " " * 4))
    names: dict[str, Any] = runpy.run_path(str(script))
    model = names["model"]
    assert model.live_ids == ("0", "2", "3", "4", "5")
    columns = {"age": names["Numeric"](), "town": names["OneHot"]()}
    columns |= {"post": names["TargetEncode"](), "joined": names["Date"]()}
    kept = {name: values[:1] + values[2:] for name, values in names["table"].items()}
    afresh = names["LinearModel"](preprocess=columns).fit(kept, [1.0, 0.7, 1.9, 2.2, 1.4])
    asked = {"age": [40], "town": ["Ulm"], "post": ["b"], "joined": ["2021-05-05"]}
    assert abs(model.predict(asked)[0] - afresh.predict(asked)[0]) < 1e-9


def test_the_page_s_file_for_register_is_one(tmp_path: Path) -> None:
    """It shows each step, and the settings that its comments name are those by default."""
    shown = PAGE.read_text().partition("```toml\n")[2].partition("```")[0]
    path = tmp_path / "columns.toml"
    path.write_text(shown)
    columns = read_preprocess_file(path)
    assert columns == {
        "size": Numeric(),
        "town": OneHot(),
        "condition": Ordinal(("poor", "fair", "good")),
        "post": TargetEncode(),
        "listed": Date(),
        "area": Numeric(of=Product({"length": 1, "width": 1})),
    }
