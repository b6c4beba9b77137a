"""The same mild streams with the engine of another checkout: what the bounds have come to cost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tests.proof.bounds.figures import Figures
from tests.proof.bounds.running import MILD, SETS, Job, run_job
from tests.proof.bounds.states import Record

LOOSER = 100.0
"""Times that the median bound may be looser than the other engine's."""

_APPROXIMATE = ("pru", "influence")

# The other engine is imported before this battery's own directory can offer one.
_CHILD = """
import sys
directory, own, seeds = sys.argv[1:]
sys.path.insert(0, directory + "/src")
import lethe.engine
sys.path[0] = own
from tests.proof.bounds.against import print_records
print_records(directory, int(seeds))
"""


def print_records(directory: str, seeds: int) -> None:
    """Print the mild records of the engine that is imported, as JSON: called in the child."""
    import lethe

    where = Path(lethe.__file__).resolve().parents[2]
    if where != Path(directory).resolve():
        raise SystemExit("the engine was not imported from the directory that was named")
    json.dump(mild_records(seeds), sys.stdout)


def mild_records(seeds: int) -> list[Record]:
    """Return the records of the mild families, ``seeds`` streams each."""
    families = SETS["linear", MILD].named
    jobs = [Job("linear", MILD, name, range(seeds)) for name in families]
    return [record for job in jobs for record in run_job(job).records]


def other_records(directory: Path, seeds: int) -> list[Record]:
    """Return the same records of the engine in ``directory``, made in a process of its own."""
    own = str(Path(__file__).resolve().parents[3])
    command = [sys.executable, "-c", _CHILD, str(directory.resolve()), own, str(seeds)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"the other engine did not run the streams:\n{done.stderr.strip()}")
    return [Record(*fields) for fields in json.loads(done.stdout)]


def compared(here: Sequence[Record], there: Sequence[Record]) -> dict[str, Figures]:
    """Return the medians of both engines by family, over states that publish the exact answer.

    States are matched by stream and place in it, so that a refusal of one leaves no pair.
    """
    pairs = list(_paired(here, there))
    names = list(dict.fromkeys(a.family for a, _ in pairs))
    rows = {name: _medians([p for p in pairs if p[0].family == name]) for name in names}
    return {**rows, "all": _medians(pairs)}


def _paired(here: Sequence[Record], there: Sequence[Record]) -> list[tuple[Record, Record]]:
    others = {(r.family, r.seed, r.step, r.how): r for r in there}
    found = [(r, others.get((r.family, r.seed, r.step, r.how))) for r in here]
    exact = [(a, b) for a, b in found if b is not None and a.how not in _APPROXIMATE]
    return [(a, b) for a, b in exact if a.bound and b.bound]


def _medians(pairs: Sequence[tuple[Record, Record]]) -> Figures:
    bounds = [float(np.median([r.bound or 0.0 for r in side])) for side in zip(*pairs, strict=True)]
    loose = [
        float(np.median([(r.bound or 0.0) / r.distance if r.distance else np.inf for r in side]))
        for side in zip(*pairs, strict=True)
    ]
    return {
        "states": len(pairs),
        "bound": bounds[0],
        "bound_there": bounds[1],
        "ratio": bounds[0] / bounds[1],
        "over_error": loose[0],
        "over_error_there": loose[1],
    }


def broken(rows: Mapping[str, Figures]) -> list[str]:
    """Return what is looser than it may be."""
    ratio = float(rows["all"]["ratio"] or 0.0)
    if ratio <= LOOSER:
        return []
    return [f"the median bound is {ratio:.0f} times the other engine's, more than {LOOSER:.0f}"]
