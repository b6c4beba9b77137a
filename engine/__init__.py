"""Lethe's engine: the mathematics and the state of deletion. No Kafka, no command line.

Where things are: `engine.objective` and `engine.fit` (the models), `engine.precompute` (factor
and dual rows), `engine.downdate` (leaving k rows out), `engine.methods` (pru, exact, influence),
`engine.stream` (a stream of deletions), `engine.error` and `engine.certificate` (how far we are
from retraining), `engine.refresh` (the four sizes) and `engine.policy` (which one is due),
`engine.store` (the state in Redis).
"""

from engine.error import ErrorKind, PublishedError
from engine.errors import LetheError
from engine.model import LinearModel, LogisticModel
from engine.policy import Limits, Size
from engine.result import DeletionResult

__all__ = [
    "DeletionResult",
    "ErrorKind",
    "LetheError",
    "Limits",
    "LinearModel",
    "LogisticModel",
    "PublishedError",
    "Size",
]
