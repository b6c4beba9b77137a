"""What each command of ``lethe`` may import, and what its imports cost.

``python -m tests.support.command_imports`` prints the processor time of each: the median of seven
fresh interpreters, in seconds, for its help and for its work.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from collections.abc import Iterable
from types import MappingProxyType

from lethe.consumers.cli.main import COMMANDS

_ASKED_FOR = (  # extras, and what an option, a setting or a method of a model loads
    "fastapi", "uvicorn", "kafka", "sklearn", "pandas", "matplotlib", "mlflow",
    "onnx", "openlineage", "skops",
)  # fmt: skip
_OF_WORKERS = (*_ASKED_FOR, "prometheus_client", "stamina")
_OF_STATE = (*_OF_WORKERS, "pyarrow", "flint")
_OF_REQUESTS = (*_OF_STATE, "numpy", "scipy")
_OF_HELP = (*_OF_REQUESTS, "cryptography", "pydantic", "redis", "rich", "structlog")

FORBIDDEN = MappingProxyType(
    {
        # their work stands elsewhere
        ("main", "send.delete", "send.erase", "maintain.register"): _OF_HELP,
        (
            "send.deletion", "send.erasure", "show.erasures", "show.dead_letters", "maintain.key",
            "maintain.sample",
        ): _OF_REQUESTS,
        ("show.versions",): (*_OF_STATE, "scipy"),
        (
            "show.status", "show.receipt", "show.disclosure", "show.summary", "check.check",
            "maintain.unregister", "maintain.refresh", "maintain.recover", "maintain.export",
            "run.mirror",
        ): _OF_STATE,
        # they read tables
        (
            "maintain.registering", "send.change", "send.reconcile", "check.verify", "check.audit",
        ): _OF_WORKERS,
        ("run.work", "run.serve"): _ASKED_FOR,
    }
)  # fmt: skip
"""By modules of `lethe.consumers.cli`, the packages that none of them imports when it is loaded."""

_WORK = {
    "delete": "send.deletion", "erase": "send.erasure", "register": "maintain.registering"
}  # fmt: skip
_RUNS = 7

_WATCH = """
import importlib, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in forbidden:
            frame, chain = sys._getframe(1), [name]
            while frame is not None:
                if frame.f_code.co_name == "<module>" and frame.f_globals["__name__"] != "__main__":
                    chain.append(frame.f_globals["__name__"])
                frame = frame.f_back
            print(" > ".join(reversed(chain)))
            forbidden.remove(top)

modules, forbidden = sys.argv[1].split(), set(sys.argv[2].split())
sys.meta_path.insert(0, Watch())
for module in modules:
    importlib.import_module("lethe.consumers.cli." + module)
"""


def forbidden_imports(modules: Iterable[str], forbidden: Iterable[str]) -> list[str]:
    """Import modules of the commands in a fresh interpreter.

    Returns
    -------
    list of str
        For each package that they import although it is forbidden, the chain of modules that led
        to it first, from the command on.
    """
    command = [sys.executable, "-c", _WATCH, " ".join(modules), " ".join(forbidden)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def _seconds(code: str) -> float:
    """Return the processor time of a fresh interpreter that runs some code."""
    times = []
    for _ in range(_RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(times)


def main() -> None:
    """Print a line for each command."""
    run = "from lethe.consumers.cli.main import run; run({})"
    sys.stdout.write(f"{'lethe --help':<20} {_seconds(run.format(['--help'])):.2f}\n")
    for name, (module, _) in COMMANDS.items():
        work = _WORK.get(name)
        modules = module if work is None else f"{module}, lethe.consumers.cli.{work}"
        help_, all_ = run.format([name, "--help"]), f"import lethe.consumers.{modules}"
        sys.stdout.write(f"{name:<20} {_seconds(help_):.2f} {_seconds(all_):.2f}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
