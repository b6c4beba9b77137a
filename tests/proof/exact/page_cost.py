"""What retraining in whole numbers takes in the audit page, whose script Node runs."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lethe.consumers.server.console.offline import MODULES, script_of
from tests.support.page_verifier import node

_SIZES = (
    (1_000, 5), (1_000, 50), (1_000, 100), (1_000, 150), (1_000, 200), (1_000, 230),
    (10_000, 5), (10_000, 20), (10_000, 50),
    (100_000, 5), (100_000, 20), (100_000, 50), (50_000, 200), (1_000_000, 5), (1_000_000, 20),
)  # fmt: skip

_DRIVER = """
const normal = () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
const [n, d] = process.argv.slice(2).map(Number);
const names = Array.from({ length: d + 1 }, (_, j) => `x${j}`);
const table = [names.join(",")];
for (let i = 0; i < n; i += 1) table.push(names.map(normal).join(","));
const seconds = (begin) => `${((performance.now() - begin) / 1000).toFixed(1)} s`;
try {
  const file = new Blob(table.map((line) => `${line}\\n`));
  let begin = performance.now();
  const columns = await readTable(file, names, "", () => {});
  const read = seconds(begin);
  begin = performance.now();
  await minimiser(columns.slice(0, d), columns.slice(d), Array(n).fill(1), Array(d).fill(0.1));
  console.log(`read in ${read}, solved in ${seconds(begin)}`);
} catch (error) {
  console.log(`refused: ${error.message}`);
}
"""  # noqa: E501 - the code is JavaScript's


def page_costs() -> Iterator[tuple[int, int, str]]:
    """Yield n, d, and how long it takes to read a CSV file of normal numbers, and to retrain."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "page.mjs"
        modules = [name for name in MODULES if name != "page"]
        program.write_text(f"{script_of(modules)}{{{_DRIVER}}}", encoding="utf-8")
        for n, d in _SIZES:
            done = subprocess.run(
                [node(), "--no-warnings", str(program), str(n), str(d)],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            yield n, d, done.stdout.strip()
