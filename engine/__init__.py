"""Lethe's engine: the mathematics and the state of deletion. No Kafka, no command line.

Where things are: `engine.objective` and `engine.fit` (the models), `engine.precompute` (factor
and dual rows), `engine.downdate` (leaving k rows out), `engine.methods` (pru, exact, influence),
`engine.stream` (a stream of deletions), `engine.error` and `engine.certificate` (how far we are
from retraining), `engine.refresh` (the four sizes), `engine.store` (the state in Redis).
"""

from engine.error import ErrorKind, PublishedError
from engine.errors import LetheError
from engine.model import DeletionResult, LinearModel, LogisticModel
from engine.refresh import Limits, Size

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
