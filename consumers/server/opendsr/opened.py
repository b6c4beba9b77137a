"""OpenDSR on an application, where it is configured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastapi import FastAPI

from lethe.consumers.contract.signatures import Signer
from lethe.consumers.server.opendsr.configuration import read_configuration
from lethe.consumers.server.opendsr.desk import Desk
from lethe.consumers.server.opendsr.notifier import Notifier
from lethe.consumers.server.opendsr.record import Records
from lethe.consumers.server.opendsr.routes import OpenDsr, router
from lethe.consumers.server.opendsr.signature import AnswerSigner
from lethe.consumers.server.services import Services


@contextmanager
def opendsr_on(
    app: FastAPI, services: Services, path: Path | None, signer: Signer | None
) -> Iterator[None]:
    """Add OpenDSR to an application, and carry its requests on until the block ends.

    Raises
    ------
    InvalidData
        The configuration cannot be used.
    """
    if path is None:
        yield
        return
    configuration = read_configuration(path)
    answers = None if signer is None else AnswerSigner(signer.private, configuration.domain)
    records = Records(services.store.client)
    desk = Desk(services, records, Notifier(records, configuration.callbacks, answers))
    app.state.opendsr = OpenDsr(configuration=configuration, desk=desk, signer=answers)
    app.include_router(router)
    with desk.running():
        yield
